// SPDX-License-Identifier: Apache-2.0
// Tries in a child process what may end it.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace pagefuse {

// What `attempt` returns in a child of this process, where nothing that it does is seen here. A child
// that ends before it returned, or takes longer than half a minute, is FailedPrecondition with how it
// ended and the last line that it wrote.
absl::Status TryInChild(const std::function<absl::Status()>& attempt);

}  // namespace pagefuse
