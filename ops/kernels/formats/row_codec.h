// SPDX-License-Identifier: Apache-2.0
// What the definitions of the cache formats share, and constants and bit layouts that their vectors
// and devices share too.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "pagefuse/ops/kernels/formats/cache_rows.h"

namespace pagefuse {

// Row scales are largest magnitude / largest code, but not below the floor, so that a row of zeros
// divides by no zero.
inline constexpr float kInt8Max = 127.0f;
inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kInt4Max = 15.0f;
inline constexpr float kScaleFloor = 1e-6f;

// An int4 row keeps its zero point, 0..15, in the low four mantissa bits of its scale.
constexpr float PackZeroPoint(float scale, float zero_point) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale) & ~15u;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(zero_point));
}
constexpr float ZeroPointOf(float stored) {
  return static_cast<float>(std::bit_cast<uint32_t>(stored) & 15u);
}
constexpr float WithoutZeroPoint(float stored) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(stored) & ~15u);
}

float LargestOf(const float* x, int64_t n);  // magnitude
void StoreRowScale(float scale, RowAddress row);
float LoadRowScale(RowAddress row);

// The nodes before codes that are row / scale: $p_row_scale, its axis $p_axis, and $p_clipped.
struct RowScaleNodes {
  const char* least;    // code
  const char* largest;  // code
  bool rounds = false;  // to whole numbers
};
std::string RowScaleText(const RowScaleNodes& nodes);

}  // namespace pagefuse
