#include "pagefuse/ops/pagefuse/cache/grouped_insert.h"

#include <cstring>

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

void InsertGroupedRows(const GroupedInsert& insert, const std::vector<SlotWrite>& writes) {
  const GroupedRowFormat& format = insert.format;
  std::vector<float> x(format.coded);
  for (const SlotWrite& write : writes) {
    const uint8_t* source = insert.coded + write.token * insert.coded_stride;
    // The source is of a float type: never an error.
    DecodeToFloat(insert.source_type, source, format.coded, x.data()).IgnoreError();
    const uint8_t* plain =
        format.plain == 0 ? nullptr : insert.plain + write.token * insert.plain_stride;
    EncodeGroupedRow(format, x.data(), plain, insert.rows.AtSlot(write.slot, 0));
  }
}

void GatherGroupedRows(const GroupedGather& gather, const std::vector<SlotRead>& reads) {
  const GroupedRowFormat& format = gather.format;
  std::vector<float> x(format.elements());
  for (const SlotRead& read : reads) {
    const RowAddress row = gather.rows.AtSlot(read.slot, 0);
    uint8_t* out = gather.workspace + read.row * format.elements() * 2;
    DecodeGroupedRow(format, row, x.data());
    EncodeFromFloat(DataType::kBfloat16, x.data(), format.coded, out).IgnoreError();
    if (format.plain == 0) continue;
    std::memcpy(out + 2 * format.coded, row.data + format.PlainOffset(), 2 * format.plain);
  }
}

absl::Status CheckUsedBlocks(const KernelArgs& args, int block_table, const TableRange& range,
                             const PagedBytes& paged) {
  if (range.count == 0) return absl::OkStatus();
  const TensorArg& table = args.input(block_table);
  const int64_t end = range.first + range.count;
  for (int64_t i = range.first / paged.block_size; i * paged.block_size < end; ++i) {
    const int64_t block = IndexAt(table, range.request * table.dim(1) + i);
    if (block >= 0 && block < paged.num_blocks) continue;
    return InputRangeError(args, block_table,
                           StrCat("expected blocks in [0, ", paged.num_blocks, "), got ", block,
                                  " at [", range.request, ", ", i, "]"));
  }
  return absl::OkStatus();
}

int64_t SlotOf(const TensorArg& block_table, int64_t request, int64_t position,
               int64_t block_size) {
  const int64_t block = IndexAt(block_table, request * block_table.dim(1) + position / block_size);
  return block * block_size + position % block_size;
}

}  // namespace pagefuse::pagefuse_ops
