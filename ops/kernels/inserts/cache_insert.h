// SPDX-License-Identifier: Apache-2.0
// Rows of keys and values written to their slots of a paged cache.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"

namespace pagefuse::pagefuse_ops {

// The keys or the values of one insert.
struct CacheSide {
  CacheFormat format;
  DataType source_type = DataType::kFloat;  // logical: uint8 stands for float8e4m3fn
  const uint8_t* source = nullptr;          // [tokens, heads, head_size]
  int64_t heads = 0;
  int64_t head_size = 0;
  CacheRows rows;
  const float* tensor_scales = nullptr;  // fp8_per_tensor: one for all heads, or one a head
  int64_t tensor_scale_count = 1;
  const float* rht_signs = nullptr;

  RowParams Params(int64_t head) const;
  int64_t SourceRowBytes() const;
  const uint8_t* SourceRow(int64_t token, int64_t head) const;
  // The row's bytes are stored unchanged: nothing is quantised, or the source is quantised already.
  bool CopiesBytes() const;
};
struct CacheSides {
  CacheSide key;
  CacheSide value;
  std::vector<SlotWrite> writes;
};

using SideList = std::initializer_list<const CacheSide*>;

// Writes the tokens' rows of each side, the plain way.
void InsertRows(SideList sides, const std::vector<SlotWrite>& writes);
// The same bytes, vectorised and parallel over tokens.
void InsertRowsHwy(SideList sides, const std::vector<SlotWrite>& writes);

}  // namespace pagefuse::pagefuse_ops
