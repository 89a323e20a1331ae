// SPDX-License-Identifier: Apache-2.0
// Lets a shell command of the user decide whether a model is right.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// OK if the command names the file by {}.
absl::Status CheckShellCommand(const std::string& command);

// Writes the model and runs the command with the file's name in place of {}: nothing if its status is
// 0, else the first line that it printed, or its status. A model that cannot be written fails by
// that reason. With `exports` the file is one for other runtimes, as `opt -o` writes it.
absl::StatusOr<std::optional<std::string>> RunShellCheck(const std::string& command,
                                                         const Model& model, bool exports);

}  // namespace pagefuse::tools
