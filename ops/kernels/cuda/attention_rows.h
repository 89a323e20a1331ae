// SPDX-License-Identifier: Apache-2.0
// Rows that attention reads and writes, a warp a row: queries, keys and values as floats, and results. Device code: for .cu files.
#pragma once

#include <cmath>

#include "pagefuse/ops/kernels/cuda/paged_attention.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"

namespace pagefuse::cuda {

inline constexpr int kAttentionRows = 4;  // of a warp
inline constexpr int kAttentionKeys = kWarp;

// Elements of `from` to floats, changed by f.
template <typename T, class F>
__device__ void DecodeElements(const uint8_t* bytes, int n, float* to, F f) {
  const T* from = reinterpret_cast<const T*>(bytes);
  const int lane = LaneId();
  if (ComesInFours(from, n)) {
#pragma unroll 1
    for (int d = 4 * lane; d < n; d += 4 * kWarp) {
      const auto four = *reinterpret_cast<const Four<T>*>(from + d);
      float4 x;
      x.x = f(static_cast<float>(four.at[0])), x.y = f(static_cast<float>(four.at[1]));
      x.z = f(static_cast<float>(four.at[2])), x.w = f(static_cast<float>(four.at[3]));
      *reinterpret_cast<float4*>(to + d) = x;
    }
  } else {
    for (int d = lane; d < n; d += kWarp) to[d] = f(static_cast<float>(from[d]));
  }
}

__device__ inline float RoundThrough(DataType type, float x) {
  if (type == DataType::kFloat16) return static_cast<float>(Float16(x));
  if (type == DataType::kBfloat16) return static_cast<float>(Bfloat16(x));
  return x;
}

__device__ inline void DecodePlainRow(const PagedAttention& p, const uint8_t* data, float* to) {
  const int n = static_cast<int>(p.batch.head_size);
  const bool same = p.element == p.compute_type || p.compute_type == DataType::kFloat;
  const auto round = [&](float x) { return same ? x : RoundThrough(p.compute_type, x); };
  switch (p.element) {
    case DataType::kFloat:
      return DecodeElements<float>(data, n, to, round);
    case DataType::kFloat16:
      return DecodeElements<Float16>(data, n, to, round);
    case DataType::kBfloat16:
      return DecodeElements<Bfloat16>(data, n, to, round);
    default:
      return DecodeElements<Float8E4M3FN>(data, n, to, round);
  }
}

// A row of keys or values of a mode; `scale` is its own where rows have scales. Elements are to[d] times what is returned.
__device__ inline float DecodeCacheRow(const PagedAttention& p, const uint8_t* data, float scale,
                                       const float* tensor_scale, float* to) {
  const int n = static_cast<int>(p.batch.head_size);
  const auto same = [](float x) { return x; };
  switch (p.mode) {
    case KvQuantMode::kNone:
      DecodePlainRow(p, data, to);
      return 1;
    case KvQuantMode::kFp8PerTensor: {
      if (p.has_f8_query()) {
        DecodeElements<Float8E4M3FN>(data, n, to, same);
        return 1;
      }
      const float factor = *tensor_scale;
      DecodeElements<Float8E4M3FN>(
          data, n, to, [&](float x) { return RoundThrough(p.compute_type, __fmul_rn(x, factor)); });
      return 1;
    }
    case KvQuantMode::kInt8PerTokenHead:
      DecodeElements<int8_t>(data, n, to, same);
      return scale;
    case KvQuantMode::kFp8PerTokenHead:
      DecodeElements<Float8E4M3FN>(data, n, to, same);
      return scale;
    default: {
      const float zero_point = ZeroPointOf(scale);
      const float factor = WithoutZeroPoint(scale);
      for (int i = LaneId(); i < n / 2; i += kWarp) {
        const int codes = data[i];
        to[2 * i] = __fmul_rn(static_cast<float>(codes & 15) - zero_point, factor);
        to[2 * i + 1] = __fmul_rn(static_cast<float>(codes >> 4) - zero_point, factor);
      }
      return 1;
    }
  }
}

// The key of a slot: elements are to[d] times what is returned, in the space of the rotation.
__device__ inline float DecodeSlotKey(const PagedAttention& p, const uint8_t* data, float* to) {
  const int n = static_cast<int>(p.batch.head_size);
  if (!p.slot.has_centroids()) {
    DecodeElements<Float8E4M3FN>(data, n, to, [](float x) { return x; });
    return 1;
  }
  const float* centroids = p.centroids.values();
  float squares = 0;
#pragma unroll 1
  for (int d = LaneId(); d < n; d += kWarp) {
    const float c = centroids[StreamCode(data, p.slot.key_bits, d)];
    to[d] = c;
    squares += c * c;
  }
  const float norm = LoadHalfBytes(data + p.slot.KeyDataBytes());
  if (!p.norm_correction) return norm;
  return norm / sqrtf(SumOfLanes(squares) + kTurboQuantSquareFloor);
}

// The value of a slot, whose bytes begin at `data`.
__device__ inline void DecodeSlotValue(const PagedAttention& p, const uint8_t* data, float* to) {
  const int n = static_cast<int>(p.batch.head_size);
  const float scale = LoadHalfBytes(data + p.slot.ValueDataBytes());
  const float zero = LoadHalfBytes(data + p.slot.ValueDataBytes() + 2);
#pragma unroll 1
  for (int d = LaneId(); d < n; d += kWarp) {
    to[d] = static_cast<float>(StreamCode(data, p.slot.value_bits, d)) * scale + zero;
  }
}

// A row of the keys or the values. Elements are to[d] times what is returned.
__device__ inline float DecodeRow(const PagedAttention& p, bool is_key, const uint8_t* data,
                                  float scale, float* to) {
  if (!p.is_turboquant) {
    return DecodeCacheRow(p, data, scale, is_key ? p.k_scale : p.v_scale, to);
  }
  if (is_key) return DecodeSlotKey(p, data, to);
  DecodeSlotValue(p, data, to);
  return 1;
}

// The query row as floats, before any rotation.
__device__ inline void LoadQuery(const PagedAttention& p, int64_t row, float* to) {
  const int n = static_cast<int>(p.batch.head_size);
  const auto load = [&](auto element) {
    LoadRow(static_cast<const decltype(element)*>(p.query) + row * n, n, to);
  };
  switch (p.compute_type) {
    case DataType::kFloat:
      return load(float());
    case DataType::kFloat16:
      return load(Float16(0.0f));
    case DataType::kBfloat16:
      return load(Bfloat16(0.0f));
    default:
      return load(Float8E4M3FN(0.0f));
  }
}

// What multiplies the product of a query and a decoded key, but for the key's own factor.
__device__ inline float ScoreFactor(const PagedAttention& p) {
  const float scale = p.batch.scale;
  if (p.transforms_rows()) return __fdiv_rn(scale, static_cast<float>(p.batch.head_size));
  if (!p.has_f8_query()) return scale;
  return __fmul_rn(__fmul_rn(scale, *p.q_scale), p.k_scale != nullptr ? *p.k_scale : 1.0f);
}

// Largest score and sum of weights of some keys.
struct RowSums {
  float max = -INFINITY;
  float sum = 0;
};

__device__ inline float SinkOf(const PagedAttention& p, int64_t head) {
  switch (p.sink_type) {
    case DataType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(p.head_sink)[head]);
    case DataType::kBfloat16:
      return static_cast<float>(static_cast<const Bfloat16*>(p.head_sink)[head]);
    default:
      return static_cast<const float*>(p.head_sink)[head];
  }
}

__device__ inline void StoreOutput(const PagedAttention& p, int64_t row, const float* o) {
  const int n = static_cast<int>(p.batch.head_size);
  const auto store = [&](auto element) {
    using T = decltype(element);
    StoreRow(static_cast<T*>(p.output) + row * n, n, [=](int d) { return T(o[d]); });
  };
  switch (p.output_type) {
    case DataType::kFloat:
      return store(float());
    case DataType::kFloat16:
      return store(Float16(0.0f));
    case DataType::kBfloat16:
      return store(Bfloat16(0.0f));
    default:
      return store(Float8E4M3FN(0.0f));
  }
}

// From the weighted sum of values o[0, D) of all keys, in shared memory, to the outputs. Changes o. `row` is token * heads + head: an int
// where no row is transformed and no query is of e4m3fn, as in decode kernels.
template <typename Row>
__device__ void FinishRow(const PagedAttention& p, Row row, RowSums sums, float* o) {
  constexpr bool kAnyMode = sizeof(Row) > 4;
  const int n = static_cast<int>(p.batch.head_size);
  const Row token = row / static_cast<Row>(p.batch.num_heads);
  const Row head = row % static_cast<Row>(p.batch.num_heads);
  float factor = 1;  // of the values
  if (p.head_sink != nullptr) {
    const float sink = SinkOf(p, head);
    const float max = fmaxf(sums.max, sink);
    if (max > -INFINITY) {
      // Without a largest score the sum is 0, or no number as the scores are.
      factor = sums.max == -INFINITY ? sums.sum : expf(sums.max - max);
      sums = {max, sums.sum * factor + expf(sink - max)};
    }
  }
  const bool empty = sums.sum == 0;
  if (p.lse != nullptr && LaneId() == 0) {
    p.lse[head * p.batch.num_tokens + token] = empty ? -INFINITY : sums.max + logf(sums.sum);
  }
  const float after = kAnyMode && p.has_f8_query() && p.v_scale != nullptr ? *p.v_scale : 1.0f;
#pragma unroll 1
  for (int d = LaneId(); d < n; d += kWarp) {
    o[d] = empty ? 0.0f : o[d] * factor / sums.sum * after;
  }
  __syncwarp();
  if (kAnyMode && p.transforms_rows()) {
#pragma unroll 1
    for (int d = LaneId(); d < n; d += kWarp) o[d] = RoundThrough(p.compute_type, o[d]);
    __syncwarp();
    HadamardTransform(o, n);
#pragma unroll 1
    for (int d = LaneId(); d < n; d += kWarp) {
      o[d] = RoundThrough(p.compute_type, o[d] * p.rht_signs[d] / static_cast<float>(n));
    }
  }
  if (p.output_scale != nullptr) {
    const float inverse = __fdiv_rn(1.0f, *p.output_scale);
#pragma unroll 1
    for (int d = LaneId(); d < n; d += kWarp) o[d] *= inverse;
  }
  if (p.batch.rules.replaces_nan) {
#pragma unroll 1
    for (int d = LaneId(); d < n; d += kWarp) o[d] = p.batch.rules.ResultOf(o[d]);
  }
  __syncwarp();
  StoreOutput(p, row, o);
}

}  // namespace pagefuse::cuda
