// Rotary embedding of one row (RoFormer, arXiv 2104.09864), shared by the ops that rotate.
#pragma once

#include <cstdint>

namespace pagefuse::pagefuse_ops {

// Which channels are rotated, and how they pair up.
struct RopeLayout {
  int64_t pairs = 0;         // R / 2
  int64_t offset = 0;        // first rotated channel
  bool interleaved = false;  // pair i is (2i, 2i + 1), else (i, i + R/2)
};

enum class RopeDirection { kForward, kInverse };

// Rotates the pairs (a, b) of the row x in place: (a*c - b*s, b*c + a*s); inverse: with -s. Each
// product is rounded before the sum, as an unfused graph does: a fused multiply-add would differ by
// many units where the two nearly cancel. So callers are compiled with -ffp-contract=off, as those
// of rope_row-inl.h.
inline void RotateRow(const RopeLayout& layout, const float* cos, const float* sin, float* x,
                      RopeDirection direction = RopeDirection::kForward) {
  const float sign = direction == RopeDirection::kInverse ? -1.0f : 1.0f;
  for (int64_t i = 0; i < layout.pairs; ++i) {
    const int64_t first = layout.offset + (layout.interleaved ? 2 * i : i);
    const int64_t second = first + (layout.interleaved ? 1 : layout.pairs);
    const float a = x[first];
    const float b = x[second];
    const float s = sign * sin[i];
    x[first] = a * cos[i] - b * s;
    x[second] = b * cos[i] + a * s;
  }
}

}  // namespace pagefuse::pagefuse_ops
