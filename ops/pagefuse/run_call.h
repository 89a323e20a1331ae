// SPDX-License-Identifier: Apache-2.0
// The kernel of an op whose ways to compute take the same call.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::pagefuse_ops {

// compute(call), where `make` gives it from the arguments:
//   absl::StatusOr<Call> make(const KernelArgs& args)
template <auto make, auto compute>
absl::Status RunCall(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const auto call, make(args));
  compute(call);
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
