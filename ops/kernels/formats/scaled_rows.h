// SPDX-License-Identifier: Apache-2.0
// Cache rows with scales that come from outside: one for the tensor, or one for each channel of a
// head. The formats of ONNX Runtime's GroupQueryAttention and PagedAttention.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"

namespace pagefuse {

// How the rows [heads, head_size] of a token are stored. Without scales: any float type, as it is.
// With scales: x is stored as the code q of x / scale, and read as q * scale:
//   int8           q = round half to even, clamped to -128..127
//   uint8, 4 bits  q = round half to even, clamped to -8..7; elements 2i and 2i + 1 are the low and
//                  the high four bits of byte i, as q + 8; an odd last element has a zero beside it
//   float8e4m3fn   q = nearest even, clamped to +-448
struct ScaledRows {
  DataType element = DataType::kFloat;
  bool four_bits = false;  // `element` is uint8 then
  int64_t head_size = 0;
  std::vector<float> scales;  // empty: none; 1; or heads * head_size
  bool per_channel = false;

  // Elements of `element` that a row takes.
  int64_t StoredElements() const { return four_bits ? (head_size + 1) / 2 : head_size; }
  int64_t RowBytes() const { return StoredElements() * BitWidth(element) / 8; }
  // OK if rows of this type can be encoded and decoded; Unimplemented naming the type otherwise.
  absl::Status Check() const;

  // Writes RowBytes() bytes from x[0, head_size), a row of head `head`. Check() was OK. May change
  // x.
  void Encode(int64_t head, float* x, void* row) const;
  // Reads them back.
  void Decode(int64_t head, const void* row, float* x) const;
};

}  // namespace pagefuse
