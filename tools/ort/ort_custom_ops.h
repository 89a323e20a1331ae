// SPDX-License-Identifier: Apache-2.0
// Loads copies of libraries of custom ops for ONNX Runtime, to see what they register.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/temporary_folder.h"

#include "pagefuse/plugin/custom_ops/library.h"

namespace pagefuse::tools {

// The path of a copy in `folder`: a second instance of the library. One may keep what it was first or
// last registered with in a variable of its own, so each host needs an instance.
absl::StatusOr<std::string> CopyOfLibrary(const std::string& path, const TemporaryFolder& folder);

// Registers a copy of the library with nobody, and looks at what it brings. `config`: entries of the
// session's configuration. An error if it cannot be loaded, or has no ops to register.
absl::StatusOr<RegisteredOps> LookAtCustomOps(const std::string& path,
                                              const std::map<std::string, std::string>& config);

}  // namespace pagefuse::tools
