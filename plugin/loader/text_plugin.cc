// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/text_plugin.h"

#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/rewrite/text/rule_text.h"

namespace pagefuse {
namespace {

bool HasLine(const std::string& text, std::string_view start) {
  return text.starts_with(start) || absl::StrContains(text, StrCat("\n", start));
}

}  // namespace

absl::StatusOr<PluginContents> ReadTextPlugin(const std::string& path, std::string text) {
  if (!HasLine(text, "# op:") && !HasLine(text, "# rule:")) {
    return absl::InvalidArgumentError(
        "is neither a shared object nor a text with \"# op:\" or \"# rule:\"");
  }
  PluginContents contents;
  contents.name = RulePassName(path);
  contents.kind = kTextKind;
  contents.texts.push_back({path, std::move(text)});
  return contents;
}

}  // namespace pagefuse
