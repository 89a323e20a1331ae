// SPDX-License-Identifier: Apache-2.0
// Inserts of one row a token into paged caches on the device: KCacheQuantInsert, IndexerKQuantInsert and MlaCacheInsert.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/cuda/warp_slot.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// Rows of grouped codes. Token t has its coded elements, of `source_type` (float, float16, bfloat16), at coded + t * coded_stride bytes
// and its plain ones, bfloat16, at plain + t * plain_stride.
struct GroupedInsert {
  GroupedRowFormat format;
  DataType source_type = DataType::kBfloat16;
  const uint8_t* coded = nullptr;
  int64_t coded_stride = 0;
  const uint8_t* plain = nullptr;
  int64_t plain_stride = 0;
  // Coded elements, a power of two, are rotated by HadamardRotate and rounded to bfloat16 first.
  bool hadamard = false;
  CacheRows rows;
  CheckedSlots slots;
};

// The longest row that is rotated.
inline constexpr int64_t kLongestHadamardRow = kLongestInsertRow;

Error LaunchGroupedInsert(const GroupedInsert& insert, Stream stream);

// Rows of two sources side by side, their bytes as they are.
struct JoinedInsert {
  struct Part {
    const uint8_t* rows = nullptr;  // [at least tokens, bytes]
    int64_t bytes = 0;              // may be 0
  };
  Part parts[2];
  CacheRows rows;
  CheckedSlots slots;
};
Error LaunchJoinedInsert(const JoinedInsert& insert, Stream stream);

}  // namespace pagefuse::cuda
