// SPDX-License-Identifier: Apache-2.0
// A query normed and rotated, and a key row rotated and written to a paged cache.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

// How key rows and the query are stored.
enum class QNormFormat {
  kPlain,     // "none", "bf16": rows of numbers, the query in its own type
  kFp8Ue8m0,  // "fp8_ue8m0": grouped rows, the query in its own type
  kFp8,       // "fp8": e4m3fn rows and query, each under one scale
};

// One call with checked arguments: of the query's rows, and of key rows of the same type and size.
struct QNormCall : RowsToRotate {
  QNormFormat format = QNormFormat::kFp8Ue8m0;
  DataType row_type = DataType::kBfloat16;  // kPlain: of the cache
  GroupedRowFormat row_format;              // kFp8Ue8m0
  int64_t padded_heads = 0;                 // of the output; those past `heads` are zero
  float epsilon = 0;
  const uint8_t* kv = nullptr;   // [tokens, size]
  uint8_t* query_out = nullptr;  // [tokens, padded_heads, size], of `type` or e4m3fn
  float query_factor = 1.0f;     // fp8: code of x * query_factor
  float kv_factor = 1.0f;        // fp8: code of v * kv_factor
  CacheRows rows;
  std::vector<int64_t> slots;  // of each token; -1: not written

  int64_t QueryOutBytes() const { return format == QNormFormat::kFp8 ? size : RowBytes(); }
};

// The plain way; and the same, vectorised, parallel over rows, but for the order of the norm's sum.
void QNormRopeKvInsertPlain(const QNormCall& call);
void QNormRopeKvInsertHwy(const QNormCall& call);

}  // namespace pagefuse::pagefuse_ops
