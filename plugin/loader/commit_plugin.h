// SPDX-License-Identifier: Apache-2.0
// Checks what a plug-in says against all that is known, and puts it in force.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/plugin/loader/load_plugin.h"
#include "pagefuse/plugin/loader/plugin_contents.h"

namespace pagefuse {

// `loaded`: those before, whose ops errors name. One call at a time.
absl::StatusOr<Plugin> CommitPlugin(const std::string& path, PluginContents contents,
                                    const std::vector<Plugin>& loaded);

}  // namespace pagefuse
