// SPDX-License-Identifier: Apache-2.0
// Encoders of cache rows, a warp a row: the bytes of EncodeRow (formats/cache_format.h). Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"

namespace pagefuse::cuda {

// A float to int8 as ConvertElement does it.
__device__ inline int8_t ToInt8(float y) {
  if (y != y) return 0;
  return static_cast<int8_t>(fminf(fmaxf(y, -128.0f), 127.0f));
}

__device__ inline float LargestMagnitude(const float* x, int n) {
  float largest = 0;
  for (int d = LaneId(); d < n; d += kWarp) largest = fmaxf(largest, fabsf(x[d]));
  return MaxOfLanes(largest);
}

struct RowRange {
  float low, high;
};
// Of x[0, n) but for NaN; NaN if the first is.
__device__ inline RowRange RangeOf(const float* x, int n) {
  const float first = x[0];
  if (first != first) return {first, first};
  RowRange range = {first, first};
  for (int d = LaneId(); d < n; d += kWarp) {
    range.low = fminf(range.low, x[d]);
    range.high = fmaxf(range.high, x[d]);
  }
  return {MinOfLanes(range.low), MaxOfLanes(range.high)};
}

__device__ inline void EncodeInt8Row(Int8Rounding rounding, const float* x, int n, RowAddress row) {
  const float scale = fmaxf(__fdiv_rn(LargestMagnitude(x, n), kInt8Max), kScaleFloor);
  const float inverse = __fdiv_rn(1.0f, scale);
  const bool half_even = rounding == Int8Rounding::kHalfEven;
  StoreRow(reinterpret_cast<int8_t*>(row.data), n, [=](int d) {
    const float y = __fmul_rn(x[d], inverse);
    return ToInt8(half_even ? rintf(y) : y);
  });
  StoreFloatBytes(scale, row.scale);
}

__device__ inline void EncodeFp8Row(const float* x, int n, RowAddress row) {
  const float scale = fmaxf(__fdiv_rn(LargestMagnitude(x, n), kE4M3Max), kScaleFloor);
  const float inverse = __fdiv_rn(1.0f, scale);
  StoreRow(row.data, n, [=](int d) { return EncodeFloat<E4M3FNFormat>(__fmul_rn(x[d], inverse)); });
  StoreFloatBytes(scale, row.scale);
}

// Changes x.
__device__ inline void EncodeInt4Row(const float* signs, DataType source_type, float* x, int n,
                                     RowAddress row) {
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(x[d], signs[d]);
  __syncwarp();
  HadamardTransform(x, n);
  if (source_type == DataType::kFloat16) RoundRowThrough<Float16>(x, n);
  if (source_type == DataType::kBfloat16) RoundRowThrough<Bfloat16>(x, n);
  const RowRange range = RangeOf(x, n);
  float scale = __fdiv_rn(__fsub_rn(range.high, range.low), kInt4Max);
  if (scale < kScaleFloor) scale = kScaleFloor;
  // 0 for NaN.
  const float zero_point = fminf(fmaxf(roundf(__fdiv_rn(-range.low, scale)), 0.0f), kInt4Max);
  const auto code = [=](int d) {
    const float place = roundf(__fadd_rn(__fdiv_rn(x[d], scale), zero_point));
    return static_cast<int>(fminf(fmaxf(place, 0.0f), kInt4Max));
  };
  StoreRow(row.data, n / 2,
           [=](int i) { return static_cast<uint8_t>(code(2 * i) | code(2 * i + 1) << 4); });
  StoreFloatBytes(PackZeroPoint(scale, zero_point), row.scale);
}

template <typename T>
__device__ void StoreRowAs(const float* x, int n, uint8_t* to) {
  StoreRow(reinterpret_cast<T*>(to), n, [=](int d) { return T(x[d]); });
}

__device__ inline void EncodePlainRow(DataType element, const float* x, int n, uint8_t* to) {
  switch (element) {
    case DataType::kFloat:
      return StoreRowAs<float>(x, n, to);
    case DataType::kFloat16:
      return StoreRowAs<Float16>(x, n, to);
    case DataType::kBfloat16:
      return StoreRowAs<Bfloat16>(x, n, to);
    default:
      return StoreRowAs<Float8E4M3FN>(x, n, to);
  }
}

// Encodes a row of keys or values in shared memory, which may change.
__device__ inline void EncodeCacheRow(const InsertSide& side, int head, float* x, RowAddress row) {
  const int n = side.head_size;
  switch (side.mode) {
    case KvQuantMode::kNone:
      return EncodePlainRow(side.element, x, n, row.data);
    case KvQuantMode::kFp8PerTensor: {
      const float scale = side.tensor_scales[side.tensor_scale_count == 1 ? 0 : head];
      return StoreRow(row.data, n,
                      [=](int d) { return EncodeFloat<E4M3FNFormat>(__fdiv_rn(x[d], scale)); });
    }
    case KvQuantMode::kInt8PerTokenHead:
      return EncodeInt8Row(side.int8_rounding, x, n, row);
    case KvQuantMode::kFp8PerTokenHead:
      return EncodeFp8Row(x, n, row);
    case KvQuantMode::kInt4PerTokenHead:
      return EncodeInt4Row(side.rht_signs, side.source_type, x, n, row);
  }
}

}  // namespace pagefuse::cuda
