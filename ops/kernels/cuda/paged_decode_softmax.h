// SPDX-License-Identifier: Apache-2.0
// The softmax of a warp of a decode kernel: scores of a page of keys and up to eight heads, as C of mma has them. Device code: for .cu files.
#pragma once

#include <cmath>
#include <limits>

#include "pagefuse/ops/kernels/cuda/paged_decode_pages.h"

namespace pagefuse::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
// Weights are up to 2^this, so that small ones are normal halves too.
inline constexpr float kWeightHeadroom = 10;
inline constexpr float kMostWeight = 0x1p15f;
// The reference of no keys, and of such whose scores are all -inf or no numbers. It is no infinity: a score of -inf, less that, would be no number.
inline constexpr float kNoReference = std::numeric_limits<float>::lowest();

// The power of two that brings the largest element of a row near 2^8: halves hold that and what is 2^-22 of it.
__device__ inline int HalfExponent(float largest) {
  constexpr int kWanted = 8;
  const auto biased = static_cast<int>(__float_as_uint(largest) >> 23);
  if (biased == 0 || biased == 255) return 0;
  return max(-100, min(100, kWanted - (biased - 127)));
}

// At least the largest magnitude of a lane's numbers of a page; NaN where one is, which a maximum would drop.
__device__ inline float BoundOfPage(const float (&x)[2][2]) {
  return (fabsf(x[0][0]) + fabsf(x[0][1])) + (fabsf(x[1][0]) + fabsf(x[1][1]));
}

// A scale of values, of a magnitude that has a logarithm: it may be 0. Infinities and NaN stay.
__device__ inline float ScaleOfValue(float scale, float least) {
  return fabsf(scale) < least ? least : scale;
}
// What a scale adds to a score in log2. One that is no finite number adds nothing, as it must not decide what other keys weigh.
__device__ inline float LogOfScale(float scale) {
  const float log = ptx::Log2(fabsf(scale));
  return fabsf(log) < INFINITY ? log : 0;
}

// Of heads 2t and 2t + 1, by lane (g, t). Scores are in log2; weights are exp2(score - reference).
struct DecodeSoftmax {
  float reference[2] = {kNoReference, kNoReference};
  float sum[2] = {};    // of this lane's keys
  float extra[2] = {};  // the same of another number a key

  // Weights of keys g and g + 8 of a page for both heads, and the same times the values' scales (ScaleOfValue). True if sums shrink, to `keep` of
  // what they were: references rise only where halves could not hold a weight, so that no page needs the largest of all lanes.
  __device__ bool Weigh(const float (&scores)[2][2], const float (&scales)[2],
                        float (&weights)[2][2], float (&weighed)[2][2], float (&keep)[2]) {
    bool shrink = false;
#pragma unroll 1
    for (int round = 0;; ++round) {
      Exponentials(scores, scales, weights, weighed);
      if (round > 0 || !__any_sync(kAllLanes, !(BoundOfPage(weighed) <= kMostWeight))) break;
      shrink = Raise(scores, scales, keep);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) sum[j] += weights[0][j] + weights[1][j];
    return shrink;
  }
  // Sums of all keys, when there are no more.
  __device__ void Join() {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      for (int distance = 4; distance < kWarp; distance *= 2) {
        sum[j] += __shfl_xor_sync(kAllLanes, sum[j], distance);
        extra[j] += __shfl_xor_sync(kAllLanes, extra[j], distance);
      }
    }
  }

 private:
  __device__ void Exponentials(const float (&scores)[2][2], const float (&scales)[2],
                               float (&weights)[2][2], float (&weighed)[2][2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        weights[half][j] = ptx::Exp2(scores[half][j] - reference[j]);
        weighed[half][j] = weights[half][j] * scales[half];
      }
    }
  }
  // True if some lane has sums.
  __device__ bool Raise(const float (&scores)[2][2], const float (&scales)[2], float (&keep)[2]) {
    const bool any = fmaxf(reference[0], reference[1]) > kNoReference;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float max = fmaxf(scores[0][j] + LogOfScale(scales[0]), scores[1][j] + LogOfScale(scales[1]));
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
      }
      max = fmaxf(max - kWeightHeadroom, reference[j]);
      keep[j] = ptx::Exp2(reference[j] - max);
      reference[j] = max;
      sum[j] *= keep[j];
      extra[j] *= keep[j];
    }
    return __any_sync(kAllLanes, any);
  }
};

// The two numbers of heads 2t and 2t + 1, which lanes of those rows have.
__device__ inline void OfColumns(float of_row, float (&of_columns)[2]) {
  const int t = LaneId() % 4;
  of_columns[0] = __shfl_sync(kAllLanes, of_row, 8 * t);
  of_columns[1] = __shfl_sync(kAllLanes, of_row, 8 * t + 4);
}

// A score in log2 with its cap, if it has one.
__device__ inline float CapInLog2(float score, float softcap) {
  return softcap > 0 ? kLog2E * softcap * tanhf(score / (kLog2E * softcap)) : score;
}

// Scores of a page that has one.
__device__ inline void CapInLog2(float (&scores)[2][2], float softcap) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (float& score : scores[half]) score = CapInLog2(score, softcap);
  }
}

// The first row of [T, Hq] that is the sequence's token's.
__device__ inline int FirstRow(const AttentionBatch& batch, int sequence) {
  const int token = batch.query_start_loc != nullptr ? batch.query_start_loc[sequence] : sequence;
  return token * static_cast<int>(batch.num_heads);
}

// Where a result of a piece is left: of each head its sums, and its values.
struct PartialResult {
  float* sums;    // [group, 2]
  float* values;  // [group, head_size]
};
__device__ inline PartialResult PartialOf(const PagedAttention& p, const DecodePlan& plan, int slot,
                                          int part) {
  const int64_t row = (static_cast<int64_t>(slot) * plan.parts() + part) * plan.group;
  return {p.partial_sums + row * 2, p.partial_values + row * p.batch.head_size};
}
// References and sums of heads 2t and 2t + 1.
__device__ inline void StoreSums(const PartialResult& to, const DecodeSoftmax& softmax, int group) {
  const int t = LaneId();
  if (t >= 4) return;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int head = 2 * t + j;
    if (head >= group) return;
    to.sums[2 * head] = softmax.reference[j];
    to.sums[2 * head + 1] = softmax.sum[j];
  }
}

}  // namespace pagefuse::cuda
