// SPDX-License-Identifier: Apache-2.0
// What a lane of dense index scores does with products on Hopper: weighs and sums the heads, and stores logits. Device code: for .cu files.
#pragma once

#include <cmath>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/mqa_logits_dense_works.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_rows.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"

namespace pagefuse::cuda {

// Of a lane: 16 heads of each query.
inline constexpr int kDenseWeights = kDenseQueries * kTileHeads / 4;

// Weights of the heads whose products a lane has: query j / 8, heads 8 (j % 8) + 2 t and the next.
__device__ inline void LoadWeights(const MqaLogits& call, int q0, int t,
                                   float (&weights)[kDenseWeights]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    const int64_t row = q0 + j / 8;
    float2 pair = {0, 0};
    if (row < call.rows) {
      pair = *reinterpret_cast<const float2*>(call.weights + row * kTileHeads + j % 8 * 8 + 2 * t);
    }
    weights[2 * j] = pair.x, weights[2 * j + 1] = pair.y;
  }
}

// The sums over heads of two keys, of query t of the tile: those of the other queries go to the other lanes
// of four.
__device__ inline float2 SumHeads(const float (&d)[128], const float (&weights)[kDenseWeights],
                                  int t) {
  float low[kDenseQueries] = {}, high[kDenseQueries] = {};
  // Queries innermost: eight sums go on side by side, so that no addition waits for the one before it.
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int q = 0; q < kDenseQueries; ++q) {
      const int r = q * 32 + j * 4, w = (q * 8 + j) * 2;
      low[q] += weights[w] * fmaxf(d[r], 0.0f);
      high[q] += weights[w] * fmaxf(d[r + 2], 0.0f);
      low[q] += weights[w + 1] * fmaxf(d[r + 1], 0.0f);
      high[q] += weights[w + 1] * fmaxf(d[r + 3], 0.0f);
    }
  }
  const auto exchanged = [](float kept, float given, int distance) {
    return kept + __shfl_xor_sync(~0u, given, distance);
  };
  const bool odd = (t & 1) != 0, upper = (t & 2) != 0;
  const float a = exchanged(odd ? low[1] : low[0], odd ? low[0] : low[1], 1);
  const float b = exchanged(odd ? low[3] : low[2], odd ? low[2] : low[3], 1);
  const float c = exchanged(odd ? high[1] : high[0], odd ? high[0] : high[1], 1);
  const float e = exchanged(odd ? high[3] : high[2], odd ? high[2] : high[3], 1);
  return {exchanged(upper ? b : a, upper ? a : b, 2), exchanged(upper ? e : c, upper ? c : e, 2)};
}

// The row of logits that a lane stores to. One that is not there takes nothing.
struct DenseRow {
  int begin = 0, end = 0, filled = 0;
  float* logits = nullptr;

  __device__ DenseRow(const MqaLogits& call, int64_t m) {
    if (m >= call.rows) return;
    const MqaRow row = RowOf(call, m);
    begin = static_cast<int>(row.begin), end = static_cast<int>(row.end);
    filled = static_cast<int>(row.filled);
    logits = call.logits + m * call.width;
  }
  // What column n gets: its score where the row sees its key, else -inf or nothing. Under one condition, so
  // that this is one store without a branch.
  __device__ void Store(int n, float score) const {
    const bool inside = n >= begin && n < end;
    if (inside || n < filled) logits[n] = inside ? score : -INFINITY;
  }
};

// The magnitude of the scale of key n; behind the last key, of the last. Volatile: the load stays before the
// products, which hide how long it takes.
__device__ inline float LoadScale(const MqaLogits& call, int n) {
  const int64_t last = call.width - 1;
  float scale;
  asm volatile("ld.global.f32 %0, [%1];"
               : "=f"(scale)
               : "l"(reinterpret_cast<const float*>(call.keys.scales) + (n < last ? n : last)));
  return fabsf(scale);
}

}  // namespace pagefuse::cuda
