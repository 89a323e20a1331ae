// Writes docs/passes.md from the passes themselves.
#include <set>

#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

std::string PassReference() {
  std::string page =
      "# Passes\n\n"
      "Generated from the passes in `passes/`; do not edit. Written anew by "
      "`PAGEFUSE_UPDATE_DOCS=1 build/release/passes_test`.\n\n"
      "These are the passes of the pipeline, in order; the passes that simplify graphs run again "
      "between stages. The passes from `byte-caches` on run when ONNX is written.\n\n"
      "| pass | what it does |\n|---|---|\n";
  std::string rules;
  std::string options =
      "\n## Options\n\nAn option is set by `--option name=value`.\n\n| option | read by | what it sets |\n"
      "|---|---|---|\n";
  std::set<std::string> seen;
  for (const auto& pass : AllPasses()) {
    const std::string name(pass->name());
    if (!seen.insert(name).second) continue;
    StrAppend(&page, "| `", name, "` | ", pass->description(), " |\n");
    for (const PassOption& option : pass->options()) {
      StrAppend(&options, "| `", option.name, "` | `", name, "` | ", option.description,
                option.choices.empty() ? "" : ": ", absl::StrJoin(option.choices, ", "), " |\n");
    }
    const std::vector<RuleSummary> summaries = pass->rules();
    if (summaries.empty()) continue;
    StrAppend(&rules, "\n## Rules of ", name, "\n\n");
    for (const RuleSummary& rule : summaries) {
      StrAppend(&rules, "- `", rule.name, "`", rule.description.empty() ? "" : ": ",
                rule.description, "\n");
    }
  }
  return page + options + rules;
}

}  // namespace pagefuse
