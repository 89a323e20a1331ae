// SPDX-License-Identifier: Apache-2.0
// From the sums of a row to its outputs. Device code: for .cu files.
#pragma once

#include <cmath>

#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_join.h"

namespace pagefuse::cuda {

// Whose sink a row has.
__device__ inline int64_t HeadOf(const SinkResults& results, int64_t row) {
  return results.sink == nullptr ? 0 : row / results.rows_of_head % results.heads;
}

// Whether there was no key. A sum of 0 alone may also be that of keys whose scores are all -inf.
__device__ inline bool HasNoKey(RowSums sums) { return sums.max == -INFINITY && sums.sum == 0; }

// What the weighted sum of a row's values is multiplied by; 0 where no key has a weight. One thread of a row `writes` lse.
__device__ inline float FinishSums(const SinkResults& results, int64_t row, int64_t head,
                                   RowSums sums, bool writes = true) {
  constexpr float kLn2 = 0.6931471805599453f;
  const bool empty = sums.sum == 0;
  const float lse = empty ? INFINITY : sums.max * (results.unit * kLn2) + logf(sums.sum);
  if (writes && results.lse != nullptr) results.lse[row] = lse;
  if (empty) return 0;
  const float factor = 1 / sums.sum;
  if (results.sink == nullptr) return factor;
  return factor / (1 + expf(results.sink[head] - lse));
}

// The element of `out` at row * value_size + d.
__device__ inline void StoreElement(const SinkResults& results, int64_t at, float x) {
  switch (results.type) {
    case DataType::kFloat16:
      static_cast<Half*>(results.out)[at] = FromFloat<Half>(x);
      return;
    case DataType::kBfloat16:
      static_cast<Bfloat*>(results.out)[at] = FromFloat<Bfloat>(x);
      return;
    default:
      static_cast<float*>(results.out)[at] = x;
  }
}

// The partial result of a row and split.
__device__ inline int64_t PartialOf(const SinkResults& results, int64_t row, int split) {
  return split * results.rows + row;
}
__device__ inline void StoreSums(const SinkResults& results, int64_t partial, RowSums sums) {
  results.partial_sums[2 * partial] = sums.max;
  results.partial_sums[2 * partial + 1] = sums.sum;
}

// The result of one split, or of all keys where there is one alone: o[0, value_size) in shared memory, by one warp.
__device__ inline void StoreSinkRow(const SinkResults& results, int64_t row, int split,
                                    RowSums sums, const float* o) {
  const int n = results.value_size;
  if (results.splits > 1) {
    const int64_t partial = PartialOf(results, row, split);
    if (LaneId() == 0) StoreSums(results, partial, sums);
    if (HasNoKey(sums)) return;
    for (int d = LaneId(); d < n; d += kWarp) results.partial_values[partial * n + d] = o[d];
    return;
  }
  float factor = 0;
  if (LaneId() == 0) factor = FinishSums(results, row, HeadOf(results, row), sums);
  factor = __shfl_sync(kAllLanes, factor, 0);
  const bool empty = sums.sum == 0;
#pragma unroll 1
  for (int d = LaneId(); d < n; d += kWarp) {
    StoreElement(results, row * n + d, empty ? 0.0f : o[d] * factor);
  }
}

}  // namespace pagefuse::cuda
