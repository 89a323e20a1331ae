// SPDX-License-Identifier: Apache-2.0
// What kernels of rows that are rotated, and of rows that a warp keeps in shared memory, take from their arguments.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/row_rotation.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

inline DeviceIndices IndicesIn(const TensorArg& tensor) {
  return {tensor.data, tensor.dtype == DataType::kInt64};
}

// Of the last elements of rows of `size`, in interleaved pairs, by a table [P, R].
inline RowRotation RowRotationOf(const TensorArg& cos_sin, int64_t size) {
  RowRotation rotation;
  rotation.table_type = cos_sin.dtype;
  rotation.table = cos_sin.data;
  rotation.table_rows = cos_sin.dim(0);
  rotation.pairs = static_cast<int>(cos_sin.dim(1) / 2);
  rotation.offset = static_cast<int>(size - cos_sin.dim(1));
  return rotation;
}

inline absl::Status CheckRowLength(int64_t size) {
  if (size <= kLongestInsertRow) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat("rows of more than ", kLongestInsertRow, " elements, got ", size));
}
// Refuses rows, the last dim of an input, that are known to be too long.
inline absl::Status CheckRowsOf(const KernelQuery& query, int input) {
  const Value* rows = query.node->input(input);
  if (rows == nullptr || !rows->shape() || rows->shape()->rank() == 0) return absl::OkStatus();
  const std::optional<int64_t> size = rows->shape()->back(0).constant();
  return size ? CheckRowLength(*size) : absl::OkStatus();
}

}  // namespace pagefuse::cuda
