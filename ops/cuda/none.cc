// SPDX-License-Identifier: Apache-2.0
// What links in builds without CUDA.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda.h"
#include "pagefuse/ops/cuda/device_name.h"
#include "pagefuse/ops/registry/builtin_ops.h"

namespace pagefuse {

absl::StatusOr<std::shared_ptr<DeviceContext>> OpenDevice(std::string_view name) {
  PF_ASSIGN_OR_RETURN(const std::optional<int> ordinal, ParseDeviceName(name));
  if (!ordinal) return nullptr;
  return NoCudaInBuild();
}

void AddCudaKernels(OpRegistry& /*ops*/) {}

}  // namespace pagefuse
