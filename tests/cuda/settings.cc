// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <gtest/gtest.h>

namespace pagefuse {

Settings& TestSettings() {
  static auto* settings = new Settings;
  return *settings;
}

GuardedRun::GuardedRun() {
  if (GuardedContext* device = TestSettings().guarded.get()) device->set_poisons(true);
}

GuardedRun::~GuardedRun() {
  GuardedContext* device = TestSettings().guarded.get();
  if (device == nullptr) return;
  device->set_poisons(false);
  for (const std::string& line : device->Broken()) ADD_FAILURE() << line;
}

bool DeviceIsWell() {
  const absl::Status status = TestSettings().device->Wait();
  if (!status.ok()) ADD_FAILURE() << "the device is lost: " << status;
  return status.ok();
}

}  // namespace pagefuse
