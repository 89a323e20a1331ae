// SPDX-License-Identifier: Apache-2.0
// CUDA devices, in builds with and without CUDA.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"

namespace pagefuse {

// The device of an option: null for "cpu", or "cuda" and "cuda:N". InvalidArgument for another name; FailedPrecondition saying what is
// missing: CUDA in this build, a driver, a new enough one, a GPU, a new enough one, one of that number.
absl::StatusOr<std::shared_ptr<DeviceContext>> OpenDevice(std::string_view name);

}  // namespace pagefuse
