// SPDX-License-Identifier: Apache-2.0
// Loads the plug-ins that a command line names, before the command runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace pagefuse::tools {

// --plugin
void AddPlugins(Command command, std::vector<std::string>& paths);

// Loads the plug-ins that PAGEFUSE_PLUGINS names, with colons between them, then those of the command
// line, each in a child process first.
absl::Status LoadPlugins(const std::vector<std::string>& paths);

}  // namespace pagefuse::tools
