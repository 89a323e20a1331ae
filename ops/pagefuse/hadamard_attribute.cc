// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"

#include <bit>
#include <cstdint>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<bool> HasHadamard(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t hadamard, node.IntAttribute(kHadamard, 0));
  return hadamard != 0;
}

absl::Status CheckHadamardSize(const ShapeContext& c, int port) {
  PF_ASSIGN_OR_RETURN(const bool hadamard, HasHadamard(c.node()));
  const Shape* rows = c.input_shape(port);
  if (!hadamard || !rows || rows->rank() == 0) return absl::OkStatus();
  const std::optional<int64_t> size = rows->back(0).constant();
  if (!size || std::has_single_bit(static_cast<uint64_t>(*size))) return absl::OkStatus();
  return c.InputError(
      port, StrCat("expected rows of a power of two with hadamard = 1, got ", rows->ToString()));
}

}  // namespace pagefuse::pagefuse_ops
