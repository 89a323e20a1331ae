// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/device_flag.h"

#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/cuda.h"

namespace pagefuse::tools {

Option AddDeviceFlag(Command command, std::string& name, const std::string& description) {
  return command.AddText("--device", name, description).ShowsDefault();
}

absl::Status DeviceError(const std::string& name, const absl::Status& status) {
  return AtPlace(absl::IsInvalidArgument(status) ? "--device" : StrCat("--device ", name), status);
}

absl::StatusOr<std::shared_ptr<DeviceContext>> ReadDeviceFlag(const std::string& name) {
  absl::StatusOr<std::shared_ptr<DeviceContext>> device = OpenDevice(name);
  if (!device.ok()) return DeviceError(name, device.status());
  return device;
}

}  // namespace pagefuse::tools
