// SPDX-License-Identifier: Apache-2.0
// Rows in registers as codes of one byte: the bytes of row_codec.h in the modes that have such codes. A lane has some elements of a row, any
// of them; kLanes neighbouring lanes, a power of two, have all, and those without elements zeros. All lanes of a warp call these functions.
// Device code: for .cu files.
#pragma once

#include <cstdint>
#include <limits>

#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"

namespace pagefuse::cuda {

// How numbers become codes. `kE4M3OfTensor`: under a scale that is given; the others make one a row.
enum class ByteCodes { kNone, kE4M3OfTensor, kE4M3, kInt8, kInt8TowardZero };

constexpr ByteCodes ByteCodesOf(const InsertSide& side) {
  switch (side.mode) {
    case KvQuantMode::kFp8PerTensor:
      return ByteCodes::kE4M3OfTensor;
    case KvQuantMode::kFp8PerTokenHead:
      return ByteCodes::kE4M3;
    case KvQuantMode::kInt8PerTokenHead:
      return side.int8_rounding == Int8Rounding::kHalfEven ? ByteCodes::kInt8
                                                           : ByteCodes::kInt8TowardZero;
    default:
      return ByteCodes::kNone;
  }
}
constexpr bool HasRowScales(ByteCodes codes) { return codes > ByteCodes::kE4M3OfTensor; }
constexpr bool AreInt8(ByteCodes codes) { return codes >= ByteCodes::kInt8; }

template <ByteCodes kCodes>
__device__ float ByteRowScale(float largest) {
  return fmaxf(__fdiv_rn(largest, AreInt8(kCodes) ? kInt8Max : kE4M3Max), kScaleFloor);
}

// Codes of four whole numbers, or numbers that are rounded to such, half to even, of -128 to 127; the first in the low byte. The sum with
// 1.5 * 2^23 ends in the bits of the number.
__device__ inline uint32_t PackInt8(float y0, float y1, float y2, float y3) {
  const auto sum = [](float y) { return __float_as_uint(__fadd_rn(y, 0x1.8p23f)); };
  return BytePermute(BytePermute(sum(y0), sum(y1), 0x0040), BytePermute(sum(y2), sum(y3), 0x0040),
                     0x5410);
}

// Of no NaN.
template <ByteCodes kCodes>
__device__ uint32_t PackBytes(const float* y) {
  if constexpr (kCodes == ByteCodes::kInt8TowardZero) {
    return PackInt8(truncf(y[0]), truncf(y[1]), truncf(y[2]), truncf(y[3]));
  } else if constexpr (kCodes == ByteCodes::kInt8) {
    return PackInt8(y[0], y[1], y[2], y[3]);
  } else {
    return PackE4m3(y[0], y[1], y[2], y[3]);
  }
}

// Of rows with an infinity or a NaN, or with quotients that need a division. NaN is no magnitude; as int8 it is 0, and as e4m3 it keeps its
// sign.
template <ByteCodes kCodes, int kLanes, int kElements>
__device__ float EncodeOddBytes(float tensor_scale, const float (&x)[kElements],
                                uint32_t (&words)[kElements / 4]) {
  float scale = tensor_scale, factor = scale;
  if constexpr (HasRowScales(kCodes)) {
    float largest = 0;
#pragma unroll
    for (const float own : x) largest = fmaxf(largest, fabsf(own));
    scale = ByteRowScale<kCodes>(
        OverRowLanes<kLanes>(largest, [](float a, float b) { return fmaxf(a, b); }));
    factor = __fdiv_rn(1.0f, scale);
  }
#pragma unroll
  for (int i = 0; i < kElements / 4; ++i) {
    float y[4];
    uint32_t signs = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float own = x[4 * i + k];
      y[k] = WithNanOf(own, factor,
                       HasRowScales(kCodes) ? __fmul_rn(own, factor) : __fdiv_rn(own, factor));
      signs |= (__float_as_uint(y[k]) >> 31) << (8 * k + 7);
      if (AreInt8(kCodes) && y[k] != y[k]) y[k] = 0;
    }
    words[i] = PackBytes<kCodes>(y) | (AreInt8(kCodes) ? 0 : signs);
  }
  return scale;
}

template <ByteCodes kCodes, int kLanes, int kElements>
__device__ float EncodeBytesAs(float tensor_scale, const float (&x)[kElements],
                               uint32_t (&words)[kElements / 4]) {
  const auto larger = [](float a, float b) { return LargerMagnitude(a, b); };
  float largest = larger(x[0], x[1]);
#pragma unroll
  for (int i = 2; i < kElements; ++i) largest = larger(largest, x[i]);
  float scale = tensor_scale;
  bool is_quick;
  if constexpr (HasRowScales(kCodes)) {
    largest = OverRowLanes<kLanes>(largest, larger);
    is_quick = largest <= std::numeric_limits<float>::max();
    scale = ByteRowScale<kCodes>(largest);
  } else {  // what QuickQuotient takes
    is_quick = scale >= kLeastQuickScale && scale <= 1 / kLeastQuickScale &&
               largest <= __fmul_rn(scale, 0x1p58f);
  }
  if (!__all_sync(kAllLanes, is_quick)) {
    return EncodeOddBytes<kCodes, kLanes>(tensor_scale, x, words);
  }
  const float inverse = __fdiv_rn(1.0f, scale);
  float y[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    y[i] = HasRowScales(kCodes) ? __fmul_rn(x[i], inverse) : QuickQuotient(x[i], scale, inverse);
  }
#pragma unroll
  for (int i = 0; i < kElements / 4; ++i) words[i] = PackBytes<kCodes>(y + 4 * i);
  return scale;
}

// The codes of a lane's elements, four neighbours a word, and the row's scale.
template <int kLanes, int kElements>
__device__ float EncodeBytes(ByteCodes codes, float tensor_scale, const float (&x)[kElements],
                             uint32_t (&words)[kElements / 4]) {
  switch (codes) {
    case ByteCodes::kE4M3OfTensor:
      return EncodeBytesAs<ByteCodes::kE4M3OfTensor, kLanes>(tensor_scale, x, words);
    case ByteCodes::kE4M3:
      return EncodeBytesAs<ByteCodes::kE4M3, kLanes>(tensor_scale, x, words);
    case ByteCodes::kInt8:
      return EncodeBytesAs<ByteCodes::kInt8, kLanes>(tensor_scale, x, words);
    default:
      return EncodeBytesAs<ByteCodes::kInt8TowardZero, kLanes>(tensor_scale, x, words);
  }
}

}  // namespace pagefuse::cuda
