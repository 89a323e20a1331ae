// SPDX-License-Identifier: Apache-2.0
// QNormRopeKvInsert on the device: query heads normed and rotated, the key row of each token rotated and written to its slot of a paged
// cache.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/cuda/row_rotation.h"
#include "pagefuse/ops/kernels/cuda/warp_slot.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// How key rows and the query are stored.
enum class QNormStorage {
  kPlain,    // rows of numbers, the query in its own type
  kGrouped,  // grouped rows, rounded to bfloat16 before; the query in its own type
  kFp8,      // e4m3fn rows and query, each under one scale
};

struct QNormRopeInsert {
  RotatedRows query;  // key rows have their type, size and rotation
  QNormStorage storage = QNormStorage::kGrouped;
  float epsilon = 0;
  int padded_heads = 0;                     // of the output; those past the query's are zero
  void* query_out = nullptr;                // [tokens, padded_heads, size]
  const void* kv = nullptr;                 // [tokens, size]
  const float* query_factor = nullptr;      // kFp8: codes are of x * factor
  const float* kv_scale = nullptr;          // kFp8: codes are of x * (1 / scale)
  DataType row_type = DataType::kBfloat16;  // kPlain: of the cache; float, float16, bfloat16
  GroupedRowFormat row_format;              // kGrouped
  CacheRows rows;
  CheckedSlots slots;  // of the first tokens; the others have none
};

Error LaunchQNormRopeInsert(const QNormRopeInsert& call, Stream stream);

}  // namespace pagefuse::cuda
