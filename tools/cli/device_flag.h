// SPDX-License-Identifier: Apache-2.0
// The option --device, which several commands take.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/command_line.h"

#include "pagefuse/base/device.h"

namespace pagefuse::tools {

// What --device says where it is not given.
inline constexpr char kHostDevice[] = "cpu";

// Adds --device.
Option AddDeviceFlag(Command command, std::string& name, const std::string& description);

// An error of --device as users read it: "--device cuda: no NVIDIA driver: ...", or "--device: expected ..." of a name that is none.
absl::Status DeviceError(const std::string& name, const absl::Status& status);

// The device of that name, null for the host; or DeviceError.
absl::StatusOr<std::shared_ptr<DeviceContext>> ReadDeviceFlag(const std::string& name);

}  // namespace pagefuse::tools
