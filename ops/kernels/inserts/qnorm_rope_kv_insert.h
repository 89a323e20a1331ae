// A query normed and rotated, and a key row rotated and written to a paged cache.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/kernels/formats/grouped_row.h"
#include "pagefuse/kernels/numeric/index_array.h"
#include "pagefuse/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

// How key rows and the query are stored.
enum class QNormFormat {
  kFp8Ue8m0,  // "fp8_ue8m0": grouped rows, bfloat16 query
  kBf16,      // "bf16": bfloat16 rows, bfloat16 query
  kFp8,       // "fp8": e4m3fn rows and query, each under one scale
};

// One call with checked arguments.
struct QNormCall {
  QNormFormat format = QNormFormat::kFp8Ue8m0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t padded_heads = 0;  // of the output; those past `heads` are zero
  int64_t size = 0;
  float epsilon = 0;
  RopeLayout layout;
  CosSinTable table;
  IndexArray positions;
  const uint8_t* query = nullptr;  // bfloat16 [tokens, heads, size]
  const uint8_t* kv = nullptr;     // bfloat16 [tokens, size]
  uint8_t* query_out = nullptr;    // [tokens, padded_heads, size], bfloat16 or e4m3fn
  float query_factor = 1.0f;       // fp8: code of x * query_factor
  float kv_factor = 1.0f;          // fp8: code of v * kv_factor
  CacheRows rows;
  std::vector<int64_t> slots;  // of each token; -1: not written

  GroupedRowFormat RowFormat() const { return Fp8Ue8m0Row(); }
  int64_t QueryOutBytes() const { return format == QNormFormat::kFp8 ? size : 2 * size; }
};

// The plain way; and the same, vectorised, parallel over rows, but for the order of the norm's sum.
void QNormRopeKvInsertPlain(const QNormCall& call);
void QNormRopeKvInsertHwy(const QNormCall& call);

}  // namespace pagefuse::pagefuse_ops
