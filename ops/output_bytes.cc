#include "pagefuse/ops/output_bytes.h"

#include "pagefuse/ir/str_cat.h"

namespace pagefuse {

absl::StatusOr<int64_t> OutputBytes(const Node& node, int output, DataType dtype,
                                    const std::vector<int64_t>& dims) {
  absl::StatusOr<int64_t> bytes = ByteSize(dtype, dims);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(), StrCat(node.Description(), ": output ", output, ": ",
                                                    StdView(bytes.status().message())));
}

}  // namespace pagefuse
