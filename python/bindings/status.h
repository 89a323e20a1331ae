// SPDX-License-Identifier: Apache-2.0
// Status as exceptions: InvalidArgument is ValueError, NotFound FileNotFoundError, Unimplemented
// NotImplementedError, ResourceExhausted MemoryError, all else RuntimeError.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "pybind11/pybind11.h"

namespace pagefuse::python {

void Check(const absl::Status& status);

template <class T>
T Unwrap(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

}  // namespace pagefuse::python
