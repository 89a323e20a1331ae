// SPDX-License-Identifier: Apache-2.0
// An NVIDIA GPU as a device: one stream, its memory, copies.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// GPU `ordinal`, which LookAtMachine found good. Its queue() makes the GPU the current one of the calling thread, as launches want it.
absl::StatusOr<std::unique_ptr<DeviceContext>> CreateContext(int ordinal);

// OK, or Internal with the name of the error of a launch.
absl::Status LaunchError(Error error);

}  // namespace pagefuse::cuda
