// SPDX-License-Identifier: Apache-2.0
// What a test cannot go on without: results that must be OK, in a test or in what it calls. In a
// thread that the test starts, a failure ends the program.
#pragma once

#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace pagefuse {

// Ends the test with a failure at the caller's line unless the status is OK.
inline void Must(const absl::Status& status, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  if (status.ok()) return;
  ADD_FAILURE_AT(file, line) << status;
  throw std::runtime_error("a result that the test needs is missing");
}

// The value of a result, likewise.
template <typename T>
T Must(absl::StatusOr<T> result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  Must(result.status(), file, line);
  return *std::move(result);
}

}  // namespace pagefuse
