// SPDX-License-Identifier: Apache-2.0
// Selection of the largest logits of a row, with ties to the lower index.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefuse::pagefuse_ops {

// One row: the `topk` largest of logits[0, count) as indices, in falling order, equal ones in
// rising order of the index; -0 equals +0, NaN counts as -inf; -1 behind the last. The same result
// by sorting, and by a vectorised scan against a rising threshold.
struct TopKRow {
  const float* logits = nullptr;
  int64_t count = 0;           // below 2^31
  int32_t* indices = nullptr;  // [topk]
  int64_t topk = 0;
};
void SelectTopK(const TopKRow& row);

// `scratch`: TopKScratchBytes(row) bytes, aligned to 4.
size_t TopKScratchBytes(int64_t topk, int64_t count);
void SelectTopKHwy(const TopKRow& row, void* scratch);

// The rank of a logit as an unsigned number: a larger logit has a larger key.
uint32_t TopKKey(float logit);

// Candidates in rising order of the index. Keeps the `topk` best (count >= topk) in that order and
// returns the smallest logit among them. `histogram` is scratch.
struct TopKCandidates {
  static constexpr int kBits = 11;
  static constexpr int64_t kBins = int64_t{1} << kBits;

  float* logits;
  int32_t* indices;
  uint32_t* histogram;  // [kBins]
};
float KeepTopK(const TopKCandidates& candidates, int64_t count, int64_t topk);

// Writes the indices of the best row.topk of candidates [0, count) to row.indices, in falling order
// of the logits; equal ones keep their order. Returns how many. `keys`, `other_keys` and
// `other_indices`: [count] of scratch each. Candidate indices are used as scratch too.
struct TopKSortSpace {
  uint32_t* keys;
  uint32_t* other_keys;
  int32_t* other_indices;
};
int64_t SortTopK(const TopKCandidates& candidates, int64_t count, const TopKSortSpace& space,
                 const TopKRow& row);

// A logit that is likely exceeded by row.topk logits and few more: from kTopKSample logits of the
// row, which has at least as many. `sample`: [kTopKSample] of scratch.
inline constexpr int64_t kTopKSample = 1024;
float GuessThreshold(const TopKRow& row, float* sample);

}  // namespace pagefuse::pagefuse_ops
