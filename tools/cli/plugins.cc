// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plugins.h"

#include <cstdlib>

#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/plugin/loader/load_plugin.h"

namespace pagefuse::tools {

void AddPlugins(Command command, std::vector<std::string>& paths) {
  command.AddTexts("--plugin", paths,
                   "file of further ops, rules or kernels to load first (docs/plugins.md)");
}

absl::Status LoadPlugins(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  if (const char* from_environment = std::getenv("PAGEFUSE_PLUGINS")) {
    all = absl::StrSplit(from_environment, ':', absl::SkipEmpty());
  }
  all.insert(all.end(), paths.begin(), paths.end());
  for (const std::string& path : all) {
    PF_RETURN_IF_ERROR(LoadPlugin(path, {.try_in_child = true}).status());
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::tools
