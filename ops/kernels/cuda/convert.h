// SPDX-License-Identifier: Apache-2.0
// Codes of caches to what tensor cores multiply, and numbers to codes, a register at a time. The same function on hosts and devices.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

#ifdef __CUDACC__
#define PF_HOST_DEVICE __host__ __device__
#else
#define PF_HOST_DEVICE
#endif

namespace pagefuse::cuda {

// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes of a, then b.
PF_HOST_DEVICE inline uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, selector);
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> ((selector >> (4 * i) & 7) * 8) & 0xFF) << (8 * i);
  }
  return result;
#endif
}

// a - b of two halves each.
PF_HOST_DEVICE inline uint32_t SubtractHalves(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const float difference = DecodeFloat<Float16Format>(static_cast<uint16_t>(a >> shift)) -
                             DecodeFloat<Float16Format>(static_cast<uint16_t>(b >> shift));
    result |= uint32_t{EncodeFloat<Float16Format>(difference)} << shift;
  }
  return result;
#endif
}

// Two floats as halves, or as bfloat16, the first in the low bits.
PF_HOST_DEVICE inline uint32_t PackHalves(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
#else
  return EncodeFloat<Float16Format>(low) | uint32_t{EncodeFloat<Float16Format>(high)} << 16;
#endif
}
PF_HOST_DEVICE inline uint32_t PackBfloats(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
#else
  return EncodeFloat<Bfloat16Format>(low) | uint32_t{EncodeFloat<Bfloat16Format>(high)} << 16;
#endif
}

PF_HOST_DEVICE inline float HalfToFloat(uint16_t half) {
#ifdef __CUDA_ARCH__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
  return result;
#else
  return DecodeFloat<Float16Format>(half);
#endif
}

// Four int8 codes as halves: with the sign bit changed a code is a number from 0 to 255, which as the low byte of a half between 1024 and
// 2048 adds itself to 1024.
PF_HOST_DEVICE inline void WidenInt8(uint32_t codes, uint32_t& low, uint32_t& high) {
  constexpr uint32_t k1152 = 0x64806480u;  // 1024 + 128, twice
  const uint32_t positive = codes ^ 0x80808080u;
  low = SubtractHalves(BytePermute(positive, 0x64646464u, 0x4140), k1152);
  high = SubtractHalves(BytePermute(positive, 0x64646464u, 0x4342), k1152);
}

// Four e4m3fn codes as halves, which hold every one of them.
PF_HOST_DEVICE inline void WidenE4m3(uint32_t codes, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
#else
  uint32_t halves[4] = {};
  for (int i = 0; i < 4; ++i) {
    const auto code = static_cast<uint8_t>(codes >> (8 * i));
    halves[i] = EncodeFloat<Float16Format>(DecodeFloat<E4M3FNFormat>(code));
  }
  low = halves[0] | halves[1] << 16;
  high = halves[2] | halves[3] << 16;
#endif
}

// Four e4m3fn codes as floats.
PF_HOST_DEVICE inline void FloatsOfE4m3(uint32_t codes, float (&x)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves[2];
  WidenE4m3(codes, halves[0], halves[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = HalfToFloat(static_cast<uint16_t>(halves[i / 2] >> (16 * (i % 2))));
  }
#else
  for (int i = 0; i < 4; ++i) {
    x[i] = DecodeFloat<E4M3FNFormat>(static_cast<uint8_t>(codes >> (8 * i)));
  }
#endif
}

// --- numbers to codes ---

// The larger magnitude; NaN where one is.
PF_HOST_DEVICE inline float LargerMagnitude(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(fabsf(a)), "f"(fabsf(b)));
  return result;
#else
  constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
  if (a != a || b != b) return std::numeric_limits<float>::quiet_NaN();
  const auto x = std::bit_cast<float>(std::bit_cast<uint32_t>(a) & kMagnitude);
  const auto y = std::bit_cast<float>(std::bit_cast<uint32_t>(b) & kMagnitude);
  return x < y ? y : x;
#endif
}

// Codes of four numbers, the first in the low byte. Which NaN code a NaN has is open.
PF_HOST_DEVICE inline uint32_t PackE4m3(float x0, float x1, float x2, float x3) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t codes;
  asm("{\n.reg .b16 l, h;\ncvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\nmov.b32 %0, {l, h};\n}"
      : "=r"(codes)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return codes;
#else
  return EncodeFloat<E4M3FNFormat>(x0) | uint32_t{EncodeFloat<E4M3FNFormat>(x1)} << 8 |
         uint32_t{EncodeFloat<E4M3FNFormat>(x2)} << 16 |
         uint32_t{EncodeFloat<E4M3FNFormat>(x3)} << 24;
#endif
}

// Codes of eight numbers of at most 6 in magnitude, the first in the low bits. A number in [t, 2t), t a power of two of at least 1, has
// codes for multiples of t / 2, as have those below 1 with t = 1: adding t 2^22 makes the FPU round to them, and their even ones have
// even codes.
PF_HOST_DEVICE inline uint32_t PackE2m1(const float (&x)[8]) {
  constexpr uint32_t kSign = 0x80000000u, kExponent = 0x7F800000u, kOne = 0x3F800000u;
  constexpr uint32_t kRounder = 22u << 23, kEight = 0x11111111u;
  // What a sum has beside its multiple of t / 2, and log2 t twice, of which the bias is twice 127.
  constexpr uint32_t kOffset = (kRounder + 2 * 127) * kEight;
  uint32_t magnitudes = 0, signs = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < 8; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    const uint32_t exponent = bits & kExponent;
    const uint32_t t = exponent > kOne ? exponent : kOne;
    const float sum = std::bit_cast<float>(bits & ~kSign) + std::bit_cast<float>(t + kRounder);
    magnitudes += (std::bit_cast<uint32_t>(sum) - t + (t >> 22)) << (4 * i);
    signs |= (bits & kSign) >> (28 - 4 * i);
  }
  return (magnitudes - kOffset) | signs;
}

// The exponent of a float, with its bias, that is the scale of groups under powers of two (GroupFormat::ScaleOf): of a finite largest
// magnitude, raised to the floor, of at least 2^-126 times the largest code. That is 1.75 * 2^8 or 1.5 * 2^2: a mantissa above its own
// makes the power the next one.
template <GroupCodes kCodes>
PF_HOST_DEVICE uint32_t PowerScaleExponent(float largest) {
  constexpr uint32_t kMantissa = kCodes == GroupCodes::kE4M3 ? 0x600000u : 0x400000u;
  constexpr uint32_t kPower = kCodes == GroupCodes::kE4M3 ? 8 : 2;
  return ((std::bit_cast<uint32_t>(largest) + (0x7FFFFFu - kMantissa)) >> 23) - kPower;
}

// x / scale, of the inverse of the scale as float. The scale is positive and at least 2^-60, x / scale at most 2^60; below 2^-60 the result
// is small too, but need not be the quotient. Two steps of Newton, each with its exact remainder.
inline constexpr float kLeastQuickScale = 0x1p-60f;
PF_HOST_DEVICE inline float QuickQuotient(float x, float scale, float inverse) {
  const auto add_product = [](float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
  };
  constexpr uint32_t kSign = 0x80000000u;
  const float first = add_product(x, inverse, 0.0f);
  const float second = add_product(add_product(-first, scale, x), inverse, first);
  const float third = add_product(add_product(-second, scale, x), inverse, second);
  // Zeros have lost their sign.
  return std::bit_cast<float>((std::bit_cast<uint32_t>(third) & ~kSign) |
                              (std::bit_cast<uint32_t>(x) & kSign));
}

// --- codes as numbers ---

// Codes of four bits as the halves that their masked bits are: subnormals q 2^-24 in the low nibble of a half, and 16 q 2^-24 in the next.
// What is summed of them is brought back at the end.
inline constexpr uint32_t kLowNibbles = 0x000F000Fu;
inline constexpr uint32_t kHighNibbles = 0x00F000F0u;
inline constexpr float kLowNibbleUnit = 0x1p24f;
inline constexpr float kHighNibbleUnit = 0x1p20f;

}  // namespace pagefuse::cuda
