// SPDX-License-Identifier: Apache-2.0
// Groups of numbers that share one scale: e4m3fn or packed e2m1 codes under a power of two or a
// float.
//
// The scalar functions here are the definition; group_codec-inl.h gives the same bytes in vectors.
// Sources: OCP Microscaling (MX) v1.0; the quantisers of DeepSeek-V3.2 and V4 (ops
// KCacheQuantInsert, IndexerQRopeQuant, IndexerKQuantInsert, InvRopeQuant, MlaCacheInsert).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {

// The smallest e with 2^e >= r, exact for every finite r > 0; 128 for infinity, -149 for 0. No
// logarithm: rounded up, its float value is wrong at powers of two.
constexpr int CeilLog2(float r) {
  const uint32_t bits = std::bit_cast<uint32_t>(r) & 0x7FFFFFFF;
  const uint32_t mantissa = bits & 0x7FFFFF;
  if (bits >= 0x7F800000) return 128;
  if (bits >= 0x800000) return static_cast<int>(bits >> 23) - 127 + (mantissa != 0 ? 1 : 0);
  return mantissa == 0 ? -149 : static_cast<int>(std::bit_width(mantissa - 1)) - 149;
}

// 2^e for e of at least -127; infinity from 128 on.
constexpr float PowerOfTwo(int e) {
  if (e < -126) return std::bit_cast<float>(0x400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(std::min(e, 128) + 127) << 23);
}

// UE8M0 as caches store it: byte b is 2^(b - 127), 255 infinity (where FLOAT8E8M0 has its NaN), so
// that an infinite scale stays one.
constexpr uint8_t EncodeUe8m0(int e) { return static_cast<uint8_t>(std::clamp(e + 127, 0, 255)); }
constexpr float DecodeUe8m0(uint8_t byte) { return PowerOfTwo(int{byte} - 127); }

enum class GroupCodes {
  kE4M3,  // one byte a code
  kE2M1,  // two codes a byte, the even element in the low nibble
};

enum class GroupScale {
  kUe8m0,       // a power of two, stored as one byte
  kPowerOfTwo,  // a power of two, stored as float
  kFloat,       // max(amax, floor) / largest code as it is, stored as float
};

// How a group is quantised. A value type.
struct GroupFormat {
  GroupCodes codes = GroupCodes::kE4M3;
  GroupScale scale = GroupScale::kUe8m0;
  float floor = 1e-4f;  // least magnitude that the scale is made for

  constexpr float LargestCode() const { return codes == GroupCodes::kE4M3 ? kE4M3Max : 6.0f; }
  constexpr int64_t CodeBytes(int64_t n) const {
    return codes == GroupCodes::kE4M3 ? n : PackedBytes(n, 4);
  }
  constexpr int64_t ScaleBytes() const { return scale == GroupScale::kUe8m0 ? 1 : 4; }
  // The scale of a group whose largest magnitude is `amax`: r = max(amax, floor) / LargestCode() in
  // float, then the power of two that is not less than r, or r itself. e2m1 powers end at 2^127.
  constexpr float ScaleOf(float amax) const {
    const float r = std::max(amax, floor) / LargestCode();
    if (scale == GroupScale::kFloat) return r;
    return PowerOfTwo(codes == GroupCodes::kE2M1 ? std::min(CeilLog2(r), 127) : CeilLog2(r));
  }

  bool operator==(const GroupFormat&) const = default;
};

// The floors of the published quantisers.
inline constexpr float kCacheScaleFloor = 1e-4f;       // fp8 caches, indexer query and key
inline constexpr float kOutputScaleFloor = 1e-10f;     // InvRopeQuant
inline constexpr float kMxfp4Floor = 6 * 0x1p-126f;    // a group of zeros has scale 2^-126
inline constexpr float kDsMlaFloor = 448 * 0x1p-126f;  // fp8_ds_mla: scales of at least 2^-126

// Scale in float of the bytes at `scale` (no alignment needed), and back.
constexpr float LoadGroupScale(GroupScale kind, const uint8_t* scale) {
  if (kind == GroupScale::kUe8m0) return DecodeUe8m0(*scale);
  uint32_t bits = 0;  // little-endian, by bytes: devices load nothing unaligned
  for (int i = 0; i < 4; ++i) bits |= uint32_t{scale[i]} << (8 * i);
  return std::bit_cast<float>(bits);
}
constexpr void StoreGroupScale(GroupScale kind, float value, uint8_t* scale) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (kind == GroupScale::kUe8m0) {
    // Of a power of two, and of infinity: the exponent. 2^-127 is subnormal and has 0 there.
    *scale = static_cast<uint8_t>(bits >> 23);
  } else {
    for (int i = 0; i < 4; ++i) scale[i] = static_cast<uint8_t>(bits >> (8 * i));
  }
}

// Encodes x[0, n): writes CodeBytes(n) bytes of encode(x / s) at `codes` (nearest, ties to even
// code, saturating; the division correctly rounded) and returns s = ScaleOf(largest magnitude).
// NaN takes no part in the magnitude.
float EncodeGroup(const GroupFormat& format, const float* x, int64_t n, uint8_t* codes);

// x[0, n) = code * scale, one rounding each.
void DecodeGroup(GroupCodes kind, const uint8_t* codes, float scale, int64_t n, float* x);

}  // namespace pagefuse
