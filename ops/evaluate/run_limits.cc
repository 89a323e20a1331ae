// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/evaluate/run_limits.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

absl::Status CheckTensorBytes(const Node& node, int output, int64_t bytes,
                              const RunLimits& limits) {
  if (bytes <= limits.max_tensor_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat(node.Description(), ": output ", output, " takes ",
                                             bytes, " bytes, over the limit of ",
                                             limits.max_tensor_bytes));
}

absl::Status CountBodyRun(const Node& node, const RunLimits& limits, int64_t& body_runs) {
  if (body_runs++ < limits.max_body_runs) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat(node.Description(), ": graphs ran ",
                                             limits.max_body_runs,
                                             " times, which is the limit of a run"));
}

absl::Status NoMemoryForKernel(const Node& node) {
  return absl::ResourceExhaustedError(
      StrCat(node.Description(), ": no memory for what its kernel works with"));
}

}  // namespace pagefuse
