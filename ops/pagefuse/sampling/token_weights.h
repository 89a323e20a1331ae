// SPDX-License-Identifier: Apache-2.0
// What a draw among tokens goes by: integer weights of their logits, whose sums are exact. What is
// chosen depends on no order of summation, no SIMD target and no number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pagefuse/ops/pagefuse/sampling/logit_row.h"

namespace pagefuse {

// The weight of a logit is 2^44 e^x, rounded to an integer, where x = (logit - the largest of the
// row) * inverse_temperature, which is finite and positive.
inline constexpr int kWeightBits = 44;
// Logits of a row of which the sum fits into 64 bits.
inline constexpr size_t kMostWeights = (size_t{1} << 20) - 1;

// The weights of logits[0], logits[1], ... of a row.
std::vector<uint64_t> WeightsOf(const LogitRow& row, double inverse_temperature);

// Sums of the weights of a row by blocks, so that a draw reads the sums and one block. The row, of
// at most kMostWeights logits, must live as long.
class TokenWeights {
 public:
  TokenWeights(const LogitRow& row, double inverse_temperature);

  uint64_t total() const { return total_; }
  // The first index up to which the weights sum to more than `sum`, which is less than total().
  size_t IndexOf(uint64_t sum) const;

 private:
  const LogitRow& row_;
  double inverse_temperature_;
  std::vector<uint64_t> block_sums_;
  uint64_t total_ = 0;
};

// The fewest of the largest logits, of equal ones the first, whose weights reach part * total, part
// in (0, 1]: their indices, ascending.
std::vector<int32_t> FewestThatReach(const LogitRow& row, double inverse_temperature, double part);

}  // namespace pagefuse
