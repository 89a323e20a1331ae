// SPDX-License-Identifier: Apache-2.0
// What the program was started with, for its tests.
#pragma once

#include <memory>
#include <string>

#include "guarded_context.h"

#include "pagefuse/base/device.h"

namespace pagefuse {

struct Settings {
  std::shared_ptr<DeviceContext> device;    // null only until main has opened it
  std::shared_ptr<GuardedContext> guarded;  // the same device; null under a sanitizer
  // A sanitizer looks on: the smallest case of each kernel, type and format alone.
  bool sanitize = false;
  int random_cases = 200;  // of each op
  std::string report;      // a file for the report, or empty

  // For runs of single ops.
  std::shared_ptr<DeviceContext> op_device() const { return guarded ? guarded : device; }
};

Settings& TestSettings();

// While one lives, memory of the guarded device begins as a pattern. At its end bytes that were written
// outside are failures of the test.
class GuardedRun {
 public:
  GuardedRun();
  ~GuardedRun();
  GuardedRun(const GuardedRun&) = delete;
  GuardedRun& operator=(const GuardedRun&) = delete;
};

// Whether the device still answers; a failure of the test that says why not.
bool DeviceIsWell();

}  // namespace pagefuse
