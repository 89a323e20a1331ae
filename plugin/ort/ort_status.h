// SPDX-License-Identifier: Apache-2.0
// Converts between statuses of the host and ours, so that no exception leaves the library.
#pragma once

#include <exception>

#include "absl/status/status.h"
#include "plugin/ort/ort_abi.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::ort {

// Null for OK. InvalidArgument (also a number out of range) and Unimplemented have codes of the
// host's, all else is a failure.
Status* ToOrtStatus(Api* api, const absl::Status& status);
// Takes what it gets. The message is the host's.
absl::Status FromOrtStatus(Api* api, Status* status);

// The status of what throws.
template <typename Run>
absl::Status Caught(const Run& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an exception of unknown type");
  }
}

// What an entry of the library answers.
template <typename Run>
Status* Answer(Api* api, const Run& run) {
  return ToOrtStatus(api, Caught(run));
}

}  // namespace pagefuse::ort
