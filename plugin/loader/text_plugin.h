// SPDX-License-Identifier: Apache-2.0
// Plug-ins that are text: ops and rules in one file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/plugin/loader/plugin_contents.h"

namespace pagefuse {

// PluginContents::kind of them.
inline constexpr std::string_view kTextKind = "text";

// InvalidArgument for a text without a line that starts an op or a rule.
absl::StatusOr<PluginContents> ReadTextPlugin(const std::string& path, std::string text);

}  // namespace pagefuse
