// SPDX-License-Identifier: Apache-2.0
// Scores, weights and sums of the plain attention kernel: a lane scores one key of a tile for each row of its warp, then has some channels of
// their outputs. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/attention_tile.h"

namespace pagefuse::cuda::tiles {

// Products of this lane's key with the warp's rows.
__device__ inline void Dots(const SharedTile& shared, const float* keys, int head_size, int warp,
                            float (&dots)[kRows]) {
  const int fours = QueryStride(head_size) / 4;
  const auto* key = reinterpret_cast<const float4*>(keys + LaneId() * TileStride(head_size));
  const auto* query = reinterpret_cast<const float4*>(shared.query) + warp * kRows * fours;
  for (int i = 0; i < kRows; ++i) dots[i] = 0;
#pragma unroll 4
  for (int d = 0; d < fours; ++d) {
    const float4 k = key[d];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float4 q = query[i * fours + d];
      dots[i] += q.x * k.x;
      dots[i] += q.y * k.y;
      dots[i] += q.z * k.z;
      dots[i] += q.w * k.w;
    }
  }
}

__device__ inline float Bias(const PagedAttention& p, const Task& task, const Row& row, int key) {
  float bias = 0;
  const int relative = key - static_cast<int>(p.batch.context(task.b));
  if (p.batch.alibi_slopes != nullptr) {
    const float slope = p.batch.alibi_slopes[row.head];
    if (!p.batch.rules.use_alibi_sqrt) {
      bias += slope * static_cast<float>(relative);
    } else if (key <= row.position) {
      bias -= slope * sqrtf(static_cast<float>(row.position - key));
    }
  }
  if (p.batch.qq_bias != nullptr && relative >= 0 && relative < p.batch.qq_size &&
      row.token < p.batch.qq_size) {
    bias += p.batch.qq_bias[row.token * p.batch.qq_size + relative];
  }
  return bias;
}

// The score of this lane's key for a row.
__device__ inline float Score(const PagedAttention& p, const Task& task, const Row& row, int key,
                              float dot, float factor) {
  float score = dot * factor;
  const float cap = p.batch.rules.softcap;
  if (cap > 0) score = cap * tanhf(score / cap);
  return score + Bias(p, task, row, key);
}

template <int chunks>
struct Accumulators {
  RowSums sums[kRows];
  float4 values[kRows][chunks];  // channels 4 lane + 128 chunk

  __device__ void Clear() {
    for (int i = 0; i < kRows; ++i) {
      sums[i] = RowSums();
      for (int c = 0; c < chunks; ++c) values[i][c] = make_float4(0, 0, 0, 0);
    }
  }
  // Takes scores of this lane's key into row i's sums; returns the key's weight.
  __device__ float Weigh(int i, bool visible, float score) {
    const float old = sums[i].max;
    const float max = fmaxf(old, MaxOfLanes(visible ? score : -INFINITY));
    const float weight = visible ? expf(score - (max == -INFINITY ? 0 : max)) : 0;
    const float keep = old == -INFINITY ? 0 : expf(old - max);
    sums[i] = {max, sums[i].sum * keep + SumOfLanes(weight)};
    if (keep != 1) {
      for (int c = 0; c < chunks; ++c) {
        values[i][c].x *= keep, values[i][c].y *= keep;
        values[i][c].z *= keep, values[i][c].w *= keep;
      }
    }
    return weight;
  }
  // Adds weights times values of the tile's keys. What a row does not see may hold anything, so it is not multiplied.
  template <bool all_see_all>
  __device__ void Add(const float* weights, const float* rows, int head_size,
                      const unsigned (&seen)[kRows]) {
    const int stride = TileStride(head_size);
#pragma unroll 2
    for (int k = 0; k < kKeys; ++k) {
      if (!all_see_all && ((seen[0] | seen[1] | seen[2] | seen[3]) >> k & 1) == 0) continue;
      const float4 w = *reinterpret_cast<const float4*>(weights + k * kRows);
      const float weight[kRows] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int c = 0; c < chunks; ++c) {
        const int d = 4 * LaneId() + 4 * kWarp * c;
        if (d >= stride - 4) continue;
        const float4 v = *reinterpret_cast<const float4*>(rows + k * stride + d);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (!all_see_all && (seen[i] >> k & 1) == 0) continue;
          values[i][c].x += weight[i] * v.x, values[i][c].y += weight[i] * v.y;
          values[i][c].z += weight[i] * v.z, values[i][c].w += weight[i] * v.w;
        }
      }
    }
  }
  // Row i's values to memory.
  __device__ void Store(int i, int head_size, float* to) const {
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      const float at[4] = {values[i][c].x, values[i][c].y, values[i][c].z, values[i][c].w};
      for (int k = 0; k < 4; ++k) {
        const int d = 4 * LaneId() + 4 * kWarp * c + k;
        if (d < head_size) to[d] = at[k];
      }
    }
  }
};

// What a warp found of a tile's keys: this lane's weight for each row, and which keys the row sees.
struct TileWeights {
  float weights[kRows];
  unsigned seen[kRows];

  __device__ bool all_see_all() const {
    return (seen[0] & seen[1] & seen[2] & seen[3]) == kAllLanes;
  }
};

// Scores this lane's key, which the tile has.
template <int chunks>
__device__ void ScoreTile(const PagedAttention& p, const Task& task, int key, bool present,
                          const float* keys, const SharedTile& shared, TileWeights& found,
                          Accumulators<chunks>& sums) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float dots[kRows];
  Dots(shared, keys, static_cast<int>(p.batch.head_size), warp, dots);
  const float factor = __fmul_rn(ScoreFactor(p), shared.factors[LaneId()]);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Row& row = shared.rows[warp * kRows + i];
    const bool may_see = present && row.output >= 0;
    bool visible = may_see && key >= row.begin && key < row.end;
    if (p.batch.num_ranges > 0 && may_see && !visible) {
      visible = p.batch.Sees(task.b, row.position, {}, key);
    }
    found.seen[i] = __ballot_sync(kAllLanes, visible);
    const float score = visible ? Score(p, task, row, key, dots[i], factor) : 0;
    found.weights[i] = sums.Weigh(i, visible, score);
  }
}

// Adds the values of a tile.
template <int chunks>
__device__ void AddTile(const PagedAttention& p, bool present, const float* values,
                        const SharedTile& shared, const TileWeights& found,
                        Accumulators<chunks>& sums) {
  const int n = static_cast<int>(p.batch.head_size);
  float* to = shared.weights + static_cast<int>(threadIdx.x) / kWarp * (kKeys * kRows);
  const float factor = present ? shared.factors[LaneId()] : 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) to[LaneId() * kRows + i] = found.weights[i] * factor;
  __syncwarp();
  if (found.all_see_all()) {
    sums.template Add<true>(to, values, n, found.seen);
  } else {
    sums.template Add<false>(to, values, n, found.seen);
  }
}

// Adds what the keys of an interval give, a tile at a time; the next rows are copied while these are computed.
template <int chunks>
__device__ void AttendTiles(const PagedAttention& p, const TileShape& shape, const Task& task,
                            KeyInterval keys, const SharedTile& shared,
                            Accumulators<chunks>& sums) {
  constexpr int kLeast = kLeastCopies<chunks>;
  const auto* direct_keys = reinterpret_cast<const float*>(shared.keys);
  const auto* direct_values = reinterpret_cast<const float*>(shared.values);
  TileKey key = KeyOf(p, task, keys.begin, keys.end), next;
  CopyTile<kLeast>(p, shape, true, task.kv_head, key, shared);
  TileWeights found;
  for (int64_t first = keys.begin; first < keys.end; first += kKeys) {
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {  // keys, values: once in code, as decoding is long
      const auto copy_ahead = [&] {
        TileKey ahead = key;
        if (part == 1) next = ahead = KeyOf(p, task, first + kKeys, keys.end);
        CopyTile<kLeast>(p, shape, part == 1, task.kv_head, ahead, shared);
      };
      if (shape.overlaps()) {
        copy_ahead();
        ptx::WaitForCopies<1>();
      } else {
        ptx::WaitForCopies<0>();
      }
      __syncwarp();
      DecodeTile<kLeast>(p, shape, part == 0, task.kv_head, key, shared);
      __syncthreads();
      if (part == 0) {
        ScoreTile(p, task, static_cast<int>(first) + LaneId(), key.block >= 0,
                  shape.direct ? direct_keys : shared.tile, shared, found, sums);
      } else {
        AddTile(p, key.block >= 0, shape.direct ? direct_values : shared.tile, shared, found, sums);
      }
      __syncthreads();
      if (!shape.overlaps()) copy_ahead();
    }
    key = next;
  }
  ptx::WaitForCopies<0>();
}

}  // namespace pagefuse::cuda::tiles
