// SPDX-License-Identifier: Apache-2.0
// Codes of caches to what tensor cores multiply, a register at a time. The same function on hosts and devices.
#pragma once

#include <bit>
#include <cstdint>

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

// Codes of four bits as the halves that their masked bits are: subnormals q 2^-24 in the low nibble of a half, and 16 q 2^-24 in the next.
// What is summed of them is brought back at the end.
inline constexpr uint32_t kLowNibbles = 0x000F000Fu;
inline constexpr uint32_t kHighNibbles = 0x00F000F0u;
inline constexpr float kLowNibbleUnit = 0x1p24f;
inline constexpr float kHighNibbleUnit = 0x1p20f;

}  // namespace pagefuse::cuda
