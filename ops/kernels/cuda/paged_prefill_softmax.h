// SPDX-License-Identifier: Apache-2.0
// Scores of a warp's rows and a tile of keys, and the weights that they become, in the registers of its lanes: C of mma (fragments.h). Device
// code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_fragments.h"
#include "pagefuse/ops/kernels/cuda/paged_prefill_rows.h"

namespace pagefuse::cuda {

// From a tile to where this lane finds its row for LoadMatrices, if matrices are 8 rows of 16 bytes each: of A, and of transposed B, those of rows
// 0 to 7 and 8 to 15, then of the next piece; of B both pieces of rows 0 to 7 first. `^ 32 s` goes to pieces 2 s and 2 s + 1.
template <class Traits>
__device__ int PlaceInA() {
  const int lane = ptx::LaneIndex();
  return PrefillShared<Traits>::Offset(lane % 16, lane / 16);
}
template <class Traits>
__device__ int PlaceInB() {
  const int lane = ptx::LaneIndex();
  return PrefillShared<Traits>::Offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// Which keys of a tile a row sees, as bits.
__device__ inline uint64_t SeenOf(const PrefillRow& row, int first, uint64_t present) {
  const int begin = max(row.begin - first, 0), end = min(row.end - first, 64);
  if (end <= begin) return 0;
  return present & (~uint64_t{0} >> (64 - (end - begin)) << begin);
}

// Of blocks of 16 rows: rows g and g + 8 of each are this lane's, of keys 8 n + 2 t and the next.
template <class Traits>
struct PrefillScores {
  static constexpr int kBlocks = Traits::kBlocks;
  static constexpr int kColumns = Traits::kKeys / 8;
  float at[kBlocks][kColumns][4];

  // `queries` are those of the warp's rows.
  __device__ void Multiply(const uint8_t* queries, const uint8_t* keys) {
    const int a_place = PlaceInA<Traits>(), b_place = PlaceInB<Traits>();
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) at[b][n][0] = at[b][n][1] = at[b][n][2] = at[b][n][3] = 0;
    }
#pragma unroll(Traits::kParts > 1 ? 4 : 16)
    for (int step = 0; step < Traits::kHeadSize / 16; ++step) {
      uint32_t columns[kColumns / 2][4];
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) {
        ptx::LoadMatrices(keys + n * 16 * Traits::kRowBytes + (b_place ^ step * 32), columns[n]);
      }
#pragma unroll
      for (int part = 0; part < Traits::kParts; ++part) {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          uint32_t rows[4];
          ptx::LoadMatrices(queries + part * Traits::kTile.part_bytes() +
                                b * 16 * Traits::kRowBytes + (a_place ^ step * 32),
                            rows);
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
            const uint32_t* column = columns[n / 2] + n % 2 * 2;
            cuda::Multiply<Traits>(at[b][n], rows, column[0], column[1]);
          }
        }
      }
    }
  }
  // Products, by `units` of each row, become scores in log2 under a cap, and units 1.
  __device__ void Cap(float softcap, float (&units)[kBlocks][2]) {
    const float cap = softcap * kLog2E, inverse = 1 / cap;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const float factors[2] = {units[b][0] * inverse, units[b][1] * inverse};
      units[b][0] = units[b][1] = 1;
#pragma unroll
      for (auto& column : at[b]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) column[i] = cap * tanhf(column[i] * factors[i / 2]);
      }
    }
  }
  // Hides what rows do not see; `rows` are the warp's.
  __device__ void Hide(const PrefillRow* rows, int first, uint64_t present) {
    const int lane = ptx::LaneIndex(), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t seen = SeenOf(rows[16 * b + 8 * half + g], first, present) >> 2 * t;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          if ((seen >> 8 * n & 1) == 0) at[b][n][2 * half] = -INFINITY;
          if ((seen >> 8 * n & 2) == 0) at[b][n][2 * half + 1] = -INFINITY;
        }
      }
    }
  }
};

// Of each of this lane's rows. Weights are exp2(score - reference), scores in log2.
template <class Traits>
struct PrefillSoftmax {
  static constexpr int kBlocks = Traits::kBlocks;
  // A reference rises where a weight would be above 2^kMostBits, so far that the largest is 2^kWeightHeadroom.
  static constexpr float kMostBits = 15;
  float reference[kBlocks][2];
  float sum[kBlocks][2];  // of this lane's keys

  __device__ void Clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      reference[b][0] = reference[b][1] = -INFINITY;
      sum[b][0] = sum[b][1] = 0;
    }
  }
  // Scores, times `units` in log2, become weights. True if sums so far shrink, to `keep` of what they were.
  __device__ bool Weigh(PrefillScores<Traits>& scores, const float (&units)[kBlocks][2],
                        float (&keep)[kBlocks][2]) {
    float largest[kBlocks][2];
    bool rises = false;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = -INFINITY;
#pragma unroll
        for (const auto& column : scores.at[b]) {
          max = fmaxf(max, fmaxf(column[2 * half], column[2 * half + 1]));
        }
        largest[b][half] = max * units[b][half];
        rises |= largest[b][half] > reference[b][half] + kMostBits;
      }
    }
    rises = __any_sync(kAllLanes, rises);
    if (rises) Raise(largest, keep);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = reference[b][half] == -INFINITY ? 0 : reference[b][half];
#pragma unroll
        for (auto& column : scores.at[b]) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            column[i] = ptx::Exp2(fmaf(column[i], units[b][half], -low));
            sum[b][half] += column[i];
          }
        }
      }
    }
    return rises;
  }
  // Sums of all keys, when there are no more.
  __device__ void Join() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (float& s : sum[b]) {
        s += __shfl_xor_sync(kAllLanes, s, 1);
        s += __shfl_xor_sync(kAllLanes, s, 2);
      }
    }
  }

 private:
  __device__ void Raise(float (&largest)[kBlocks][2], float (&keep)[kBlocks][2]) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& max = largest[b][half];
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
        const float old = reference[b][half];
        keep[b][half] = 1;
        if (!(max > old + kMostBits)) continue;
        reference[b][half] = max - kWeightHeadroom;
        keep[b][half] = old == -INFINITY ? 0 : ptx::Exp2(old - reference[b][half]);
        sum[b][half] *= keep[b][half];
      }
    }
  }
};

}  // namespace pagefuse::cuda
