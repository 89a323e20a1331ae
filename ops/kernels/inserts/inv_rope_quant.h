// Rows with their rotation undone, as groups of codes.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/numeric/index_array.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

// Rows are (token, head), token by token; so are those of the outputs.
struct InvRopeCall {
  DataType type = DataType::kBfloat16;  // of the source
  const uint8_t* source = nullptr;      // [rows, size]
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t size = 0;
  int64_t group = 0;
  GroupFormat format;  // kUe8m0 for packed scales
  RopeLayout layout;
  CosSinTable table;
  IndexArray positions;
  uint8_t* codes = nullptr;   // [rows, size]
  uint8_t* scales = nullptr;  // [rows, size / group] floats or bytes

  int64_t rows() const { return tokens * heads; }
  int64_t SourceRowBytes() const;
  int64_t ScaleRowBytes() const { return size / group * format.ScaleBytes(); }
};

// The plain way; and the same bytes, vectorised, parallel over rows.
void InvRopeQuantPlain(const InvRopeCall& call);
void InvRopeQuantHwy(const InvRopeCall& call);

}  // namespace pagefuse::pagefuse_ops
