// SPDX-License-Identifier: Apache-2.0
// Rows with their rotation undone, as groups of codes.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

struct InvRopeCall : RowsToRotate {
  int64_t group = 0;
  GroupFormat format;         // kUe8m0 for packed scales
  uint8_t* codes = nullptr;   // [rows, size]
  uint8_t* scales = nullptr;  // [rows, size / group] floats or bytes

  int64_t ScaleRowBytes() const { return size / group * format.ScaleBytes(); }
};

// The plain way; and the same bytes, vectorised, parallel over rows.
void InvRopeQuantPlain(const InvRopeCall& call);
void InvRopeQuantHwy(const InvRopeCall& call);

}  // namespace pagefuse::pagefuse_ops
