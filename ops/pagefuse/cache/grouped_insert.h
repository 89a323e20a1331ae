// Writing and reading rows of grouped codes, for the ops whose caches hold them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/cache/grouped_row.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/pagefuse/checks.h"

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
};

// Writes the tokens' rows, the plain way; and the same bytes, vectorised, parallel over tokens.
void InsertGroupedRows(const GroupedInsert& insert, const std::vector<SlotWrite>& writes);
void InsertGroupedRowsHwy(const GroupedInsert& insert, const std::vector<SlotWrite>& writes);

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
};
void GatherGroupedRows(const GroupedGather& gather, const std::vector<SlotRead>& reads);
void GatherGroupedRowsHwy(const GroupedGather& gather, const std::vector<SlotRead>& reads);

// Tokens [first, first + count) of the request in row `request` of a block table.
struct TableRange {
  int64_t request = 0;
  int64_t first = 0;
  int64_t count = 0;
};
// The entries of the table that the range uses must be blocks of the cache (OutOfRange). The range
// lies in the table's columns.
absl::Status CheckUsedBlocks(const KernelArgs& args, int block_table, const TableRange& range,
                             const PagedBytes& paged);
// Calls f(slot) for each of these tokens in turn.
template <class F>
void ForSlots(const TensorArg& block_table, const TableRange& range, int64_t block_size,
              const F& f) {
  int64_t entry = range.request * block_table.dim(1) + range.first / block_size;
  int64_t offset = range.first % block_size;
  for (int64_t left = range.count; left > 0; ++entry) {
    const int64_t slot = IndexAt(block_table, entry) * block_size + offset;
    const int64_t count = std::min(block_size - offset, left);
    for (int64_t i = 0; i < count; ++i) f(slot + i);
    left -= count;
    offset = 0;
  }
}

// The slot of token `position` of a request, through its row of the table.
int64_t SlotOf(const TensorArg& block_table, int64_t request, int64_t position, int64_t block_size);

}  // namespace pagefuse::pagefuse_ops
