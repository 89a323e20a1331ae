// SPDX-License-Identifier: Apache-2.0
// Rows that are rotated by the positions of their tokens: what launchers take. Device code is in rotate_row.h.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"

namespace pagefuse::cuda {

// Indices in the device's memory.
struct DeviceIndices {
  const void* data = nullptr;
  bool is_int64 = true;  // else int32

  constexpr int64_t operator[](int64_t i) const {
    return is_int64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Pairs (a, b) of a row become (a cos - b sin, b cos + a sin); inverse: with -sin.
struct RowRotation {
  DataType table_type = DataType::kFloat;  // float, float16, bfloat16
  const void* table = nullptr;             // [table_rows, 2 * pairs]: cosines, then sines
  int64_t table_rows = 0;
  int pairs = 0;
  int offset = 0;           // first rotated element
  bool interleaved = true;  // pair i is (2i, 2i + 1), else (i, i + pairs)
  bool inverse = false;
};

// The rows (token, head) of a call, token by token. Outputs have the same order.
struct RotatedRows {
  DataType type = DataType::kBfloat16;  // float, float16, bfloat16
  const void* source = nullptr;         // [tokens, heads, size]
  int64_t tokens = 0;
  int heads = 0;
  int size = 0;
  RowRotation rotation;
  DeviceIndices
      positions;  // [tokens]: rows of the table. One that is none is told, and rotates nothing
  int positions_input = 0;  // of the node
  IndexErrors errors;

  constexpr int64_t Row(int64_t token, int head) const { return token * heads + head; }
};

}  // namespace pagefuse::cuda
