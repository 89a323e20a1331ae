// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/cache_insert.h"

#include <algorithm>

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

RowParams CacheSide::Params(int64_t head) const {
  RowParams params;
  if (tensor_scales != nullptr) {
    params.tensor_scale = tensor_scales[tensor_scale_count == 1 ? 0 : head];
  }
  params.rht_signs = rht_signs;
  params.source_type = source_type;
  return params;
}

int64_t CacheSide::SourceRowBytes() const { return head_size * BitWidth(source_type) / 8; }

const uint8_t* CacheSide::SourceRow(int64_t token, int64_t head) const {
  return source + (token * heads + head) * SourceRowBytes();
}

bool CacheSide::CopiesBytes() const {
  return source_type == format.element && !format.has_row_scales();
}

namespace {

void InsertRowsOf(const CacheSide& side, const std::vector<SlotWrite>& writes) {
  std::vector<float> x(side.head_size);
  for (const SlotWrite& write : writes) {
    for (int64_t head = 0; head < side.heads; ++head) {
      const uint8_t* source = side.SourceRow(write.token, head);
      const RowAddress row = side.rows.AtSlot(write.slot, head);
      if (side.CopiesBytes()) {
        std::copy_n(source, side.SourceRowBytes(), row.data);
        continue;
      }
      // The source is of a float type: never an error.
      DecodeToFloat(side.source_type, source, side.head_size, x.data()).IgnoreError();
      EncodeRow(side.format, side.Params(head), x.data(), side.head_size, row);
    }
  }
}

}  // namespace

void InsertRows(SideList sides, const std::vector<SlotWrite>& writes) {
  for (const CacheSide* side : sides) InsertRowsOf(*side, writes);
}

}  // namespace pagefuse::pagefuse_ops
