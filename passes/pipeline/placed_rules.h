// SPDX-License-Identifier: Apache-2.0
// Rules as text in their places among the passes: those of files that somebody names, and of plug-ins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/rewrite/condition_value.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

// Rules of a file that stand in one place of the pipeline; the pass is called as the file, without
// `.rules.txt`.
struct PlacedPass {
  std::shared_ptr<const Pass> pass;
  std::vector<Rule> rules;
  std::string before, after;  // a pass; both empty: the place of rules that recognise
  // Its file, where they are of a plug-in: a list of passes that does not name them goes without.
  std::string plugin = {};
};

// The last pass that recognises; rules that name no place run behind it.
inline constexpr std::string_view kLastRecognised = "gated-mlp";

// Parses and compiles. InvalidArgument with file, line, column and a mark under it.
absl::StatusOr<std::vector<PlacedPass>> ReadRules(const RuleFile& file);

// The rules of plug-ins (PublishPluginRules), then those of several files. InvalidArgument for a name
// that two rules have, or a rule and a pass or rule of the pipeline; NotFound for a place that is no
// pass.
absl::StatusOr<std::vector<PlacedPass>> ReadRuleFiles(const std::vector<RuleFile>& files);

// The rules of a plug-in: in passes called `name`, with conditions that may call `functions`. `path`:
// its file. The same errors.
absl::StatusOr<std::vector<PlacedPass>> ReadPluginRules(const std::string& path,
                                                        const std::string& name,
                                                        const std::vector<RuleFile>& files,
                                                        const ConditionFunctions& functions);

// From now on those are part of every pipeline. For who loads plug-ins, one at a time.
void PublishPluginRules(const std::vector<PlacedPass>& added);

// Puts them in their places among the passes: before the first, after the last of that name, at the
// end where there is none.
void PlaceRules(const std::vector<PlacedPass>& rules, std::vector<std::unique_ptr<Pass>>& passes);

// Every pass of that name among the rules; for the name of a rule, a pass of that rule alone.
std::vector<std::unique_ptr<Pass>> RulePasses(const std::vector<PlacedPass>& rules,
                                              const std::string& name);

}  // namespace pagefuse
