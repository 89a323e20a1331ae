// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/output_bytes.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

absl::StatusOr<int64_t> OutputBytes(const Node& node, int output, DataType dtype,
                                    const std::vector<int64_t>& dims) {
  absl::StatusOr<int64_t> bytes = ByteSize(dtype, dims);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(), StrCat(node.Description(), ": output ", output, ": ",
                                                    StdView(bytes.status().message())));
}

absl::Status CheckTypeIsKnown(const Node& node, int output, DataType dtype) {
  if (dtype != DataType::kUndefined && dtype != DataType::kString) return absl::OkStatus();
  const char* what = dtype == DataType::kString ? " is of strings, which are not computed"
                                                : ": neither op nor graph tells its type";
  return absl::UnimplementedError(StrCat(node.Description(), ": output ", output, what));
}

absl::Status CheckResult(const Node& node, int output, DataType dtype,
                         const std::vector<int64_t>& dims, const Tensor& result) {
  if (result.dtype() == dtype && result.dims() == dims) return absl::OkStatus();
  return absl::InternalError(
      StrCat(node.Description(), ": output ", output, " of its decomposition: expected ",
             DataTypeName(dtype), DimsToString(dims), " as inferred, got ",
             result.defined() ? StrCat(DataTypeName(result.dtype()), DimsToString(result.dims()))
                              : std::string("none")));
}

}  // namespace pagefuse
