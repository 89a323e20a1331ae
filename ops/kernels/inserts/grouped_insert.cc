// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"

#include <cstring>

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

void InsertGroupedRows(const GroupedInsert& insert) {
  const GroupedRowFormat& format = insert.format;
  std::vector<float> x(format.coded);
  for (const auto& [token, slot] : insert.writes) {
    // The source is of a float type: never an error.
    DecodeToFloat(insert.source_type, insert.Coded(token), format.coded, x.data()).IgnoreError();
    if (insert.hadamard) {
      HadamardRotate(x.data(), format.coded);
      RoundThrough(DataType::kBfloat16, x.data(), format.coded).IgnoreError();
    }
    EncodeGroupedRow(format, x.data(), insert.Plain(token), insert.rows.AtSlot(slot, 0));
  }
}

void GatherGroupedRows(const GroupedGather& gather) {
  const GroupedRowFormat& format = gather.format;
  std::vector<float> x(format.elements());
  for (const SlotRead& read : gather.reads) {
    const RowAddress row = gather.rows.AtSlot(read.slot, 0);
    uint8_t* out = gather.workspace + read.row * format.elements() * 2;
    DecodeGroupedRow(format, row, x.data());
    EncodeFromFloat(DataType::kBfloat16, x.data(), format.coded, out).IgnoreError();
    if (format.plain == 0) continue;
    std::memcpy(out + 2 * format.coded, row.data + format.PlainOffset(), 2 * format.plain);
  }
}

}  // namespace pagefuse::pagefuse_ops
