// SPDX-License-Identifier: Apache-2.0
// The softmax of a warp of a decode kernel: scores of up to eight heads and a page of keys, as C of mma has them. Device code: for .cu files.
#pragma once

#include <cmath>

#include "pagefuse/ops/kernels/cuda/paged_decode_pages.h"

namespace pagefuse::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
// Weights are up to 2^this, so that small ones are normal halves too.
inline constexpr float kWeightHeadroom = 10;

// The power of two that brings the largest element of a row near 2^8: halves hold that and what is 2^-22 of it.
__device__ inline int HalfExponent(float largest) {
  constexpr int kWanted = 8;
  const auto biased = static_cast<int>(__float_as_uint(largest) >> 23);
  if (biased == 0 || biased == 255) return 0;
  return max(-100, min(100, kWanted - (biased - 127)));
}

// Of head lane / 4. Scores are in log2; weights are exp2(score - reference).
struct DecodeSoftmax {
  float reference = -INFINITY;
  float sum = 0;    // of this lane's keys
  float extra = 0;  // the same of another number a key

  // Takes in scores of this lane's keys: 2t, 2t + 1 of both halves of a page. True if the reference changed; `keep` is what sums shrink to then.
  __device__ bool Raise(const float (&scores)[2][2], float& keep) {
    float max = fmaxf(fmaxf(scores[0][0], scores[0][1]), fmaxf(scores[1][0], scores[1][1]));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    max -= kWeightHeadroom;
    if (!__any_sync(kAllLanes, max > reference)) return false;
    max = fmaxf(max, reference);
    keep = max == -INFINITY ? 0 : ptx::Exp2(reference - max);
    reference = max;
    sum *= keep;
    extra *= keep;
    return true;
  }
  // Sums of all keys, when there are no more.
  __device__ void Join() {
    for (int distance = 1; distance < 4; distance *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
      extra += __shfl_xor_sync(kAllLanes, extra, distance);
    }
  }
};

// The two numbers of heads 2t and 2t + 1, which lanes of those rows have.
__device__ inline void OfColumns(float of_row, float (&of_columns)[2]) {
  const int t = LaneId() % 4;
  of_columns[0] = __shfl_sync(kAllLanes, of_row, 8 * t);
  of_columns[1] = __shfl_sync(kAllLanes, of_row, 8 * t + 4);
}

// A score in log2 from a product and its factor.
__device__ inline float ScoreInLog2(float dot, float factor, float softcap) {
  if (softcap > 0) return kLog2E * softcap * tanhf(dot * factor / softcap);
  return dot * factor * kLog2E;
}

// Where a warp leaves the result of a piece: of each head its sums, and its values.
struct PartialResult {
  float* sums;    // [group, 2]
  float* values;  // [group, head_size]
};
__device__ inline PartialResult PartialOf(const PagedAttention& p, const DecodePlan& plan, int slot,
                                          int warp) {
  const int64_t row = (static_cast<int64_t>(slot) * plan.warps + warp) * p.batch.group();
  return {p.partial_sums + row * 2, p.partial_values + row * p.batch.head_size};
}
// The reference and the sum of head lane / 4.
__device__ inline void StoreSums(const PartialResult& to, const DecodeSoftmax& softmax, int group) {
  const int g = LaneId() / 4;
  if (LaneId() % 4 != 0 || g >= group) return;
  to.sums[2 * g] = softmax.reference;
  to.sums[2 * g + 1] = softmax.sum;
}

}  // namespace pagefuse::cuda
