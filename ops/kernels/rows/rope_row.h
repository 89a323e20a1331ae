// SPDX-License-Identifier: Apache-2.0
// Rotary embedding (RoFormer, arXiv 2104.09864) and RMS norm (arXiv 1910.07467) of one row, shared
// by the ops that rotate.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/index_array.h"

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
// many units where the two nearly cancel. So callers are kernels, which are compiled so.
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

// In place x * rsqrt(mean(x^2) + epsilon) * weight; null weight: all 1. Everything is float but the
// sum, which is double until it is whole: its order does not show then.
inline void NormRow(const float* weight, float epsilon, int64_t n, float* x) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const float mean = static_cast<float>(sum) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < n; ++i) x[i] *= inverse;
  for (int64_t i = 0; weight != nullptr && i < n; ++i) x[i] *= weight[i];
}

// A table [P, R] of float, float16 or bfloat16 whose row p has R/2 cosines, then R/2 sines.
struct CosSinTable {
  DataType type = DataType::kFloat;
  const uint8_t* data = nullptr;
  int64_t rotated = 0;  // R

  int64_t pairs() const { return rotated / 2; }
  const uint8_t* Row(int64_t position) const {
    return data + position * rotated * BitWidth(type) / 8;
  }
};

// Rows (token, head), token by token, and what each is rotated by. Outputs have the same order.
struct RowsToRotate {
  DataType type = DataType::kBfloat16;  // of the source: a float type
  const uint8_t* source = nullptr;      // [tokens, heads, size]
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t size = 0;
  RopeLayout layout;
  CosSinTable table;
  IndexArray positions;  // [tokens]

  int64_t rows() const { return tokens * heads; }
  int64_t RowBytes() const { return size * BitWidth(type) / 8; }
  const uint8_t* Row(int64_t row) const { return source + row * RowBytes(); }
};

// As RotateRow, by row `position` of the table, which is one of a float type.
inline void RotateByTable(const RopeLayout& layout, const CosSinTable& table, int64_t position,
                          float* x, RopeDirection direction = RopeDirection::kForward) {
  std::vector<float> cos_sin(static_cast<size_t>(table.rotated));
  DecodeToFloat(table.type, table.Row(position), table.rotated, cos_sin.data()).IgnoreError();
  RotateRow(layout, cos_sin.data(), cos_sin.data() + table.pairs(), x, direction);
}

}  // namespace pagefuse::pagefuse_ops
