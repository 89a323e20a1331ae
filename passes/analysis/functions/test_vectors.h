// SPDX-License-Identifier: Apache-2.0
// Makes the test vectors on which two functions of tokens are compared: rows whose numbers have so
// few bits that products and sums of two are exact and no order of evaluation matters, or all bits
// of a half type, at magnitudes from the smallest to large ones.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// What a port carries, as far as it decides the numbers that tell functions apart.
enum class ProbeRole {
  kRows,        // what is quantised: at the round's magnitude
  kScores,      // near 0: logits of a softmax
  kLogSums,     // as kScores, and infinities of both signs: of rows that nothing was summed for
  kFactors,     // near 1, with a sign
  kScale,       // positive, near 1
  kLevels,      // near 0, ascending: the entries of a codebook
  kSigns,       // 1 and -1
  kTable,       // cosines and sines: no two alike, so that exchanging them shows
  kIndices,     // integers in [0, limit), in any order
  kEntries,     // integers in [-1, limit): -1 for none
  kWindowEnds,  // as kIndices, every second one the last position of a window of `step`
  kBlocks,      // as kIndices, of slots that are given in two parts
  kSlots,       // different integers in [0, limit), -1 where a round has padding
  kState,       // rows, then scores, in each row of the last axis
  kContents,    // a cache: any bytes
};

struct ProbePort {
  ProbeRole role = ProbeRole::kRows;
  DataType dtype = DataType::kUndefined;
  std::vector<int64_t> dims;
  int64_t limit = 0;
  int64_t step = 1;
};

struct ProbeRound {
  uint32_t seed = 0;
  int exponent = 0;   // rows are about 2^exponent
  bool zero = false;  // rows are 0
  // The largest numbers are 7 * 2^exponent / 8, whose share of 448 is a power of two.
  bool powers = false;
  // Sums are exact in any order: scores are so far apart that a softmax takes one of them, and the
  // squares of every eight numbers of a row have the mean 16.
  bool exact = false;
  // Rows of floats have all their bits, so that one that is dropped shows where they are copied.
  bool all_bits = false;
  bool padding = false;  // every third slot is -1
  bool beyond = false;   // every slot, or block, is the limit itself
  // Scores, log-sum-exps and scales lie on both sides of this number, and of it negated.
  float bound = 0;
};

// One tensor a port.
absl::StatusOr<std::vector<Tensor>> MakeProbe(const std::vector<ProbePort>& ports,
                                              const ProbeRound& round);

}  // namespace pagefuse
