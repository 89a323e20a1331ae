// SPDX-License-Identifier: Apache-2.0
// Keys of a server, in a file: no command line has them, which others on the machine may read.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse::tools {

// A key a line; blank lines are none. InvalidArgument naming --api-key-file where there is no key.
absl::StatusOr<std::vector<std::string>> ReadKeys(const std::string& path);

}  // namespace pagefuse::tools
