// SPDX-License-Identifier: Apache-2.0
// Writing and reading rows of grouped codes.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"

namespace pagefuse::pagefuse_ops {

// The rows of a step and the cache that takes them. Token t has its coded elements, of
// `source_type` (float, float16, bfloat16), at coded + t * coded_stride bytes and its plain
// elements, bfloat16, at plain + t * plain_stride.
struct GroupedInsert {
  GroupedRowFormat format;
  CacheRows rows;
  DataType source_type = DataType::kBfloat16;
  const uint8_t* coded = nullptr;
  int64_t coded_stride = 0;
  const uint8_t* plain = nullptr;
  int64_t plain_stride = 0;
  // Coded elements are rotated by HadamardRotate and rounded to bfloat16 first.
  bool hadamard = false;
  std::vector<SlotWrite> writes;

  const uint8_t* Coded(int64_t token) const { return coded + token * coded_stride; }
  // Null where a row has no such elements.
  const uint8_t* Plain(int64_t token) const {
    return format.plain == 0 ? nullptr : plain + token * plain_stride;
  }
};

// Writes the tokens' rows, the plain way; and the same bytes, vectorised, parallel over tokens.
void InsertGroupedRows(const GroupedInsert& insert);
void InsertGroupedRowsHwy(const GroupedInsert& insert);

// One row to read: from a slot of the cache to a row of a workspace.
struct SlotRead {
  int64_t slot;
  int64_t row;
};

// A cache and the bfloat16 workspace [rows, elements] that its rows are decoded to. A coded element
// becomes bfloat16(float(code * scale)), a plain one is copied.
struct GroupedGather {
  GroupedRowFormat format;
  CacheRows rows;
  uint8_t* workspace = nullptr;
  std::vector<SlotRead> reads;
};
void GatherGroupedRows(const GroupedGather& gather);
void GatherGroupedRowsHwy(const GroupedGather& gather);

}  // namespace pagefuse::pagefuse_ops
