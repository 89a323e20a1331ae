// Rules as text: a file of patterns, conditions and replacements, as docs/adding_a_fusion.md shows.
//
//   # What it is about, which becomes the rule's description.
//   # rule: acme-rms-norm
//   # before: attention            (or `# after:`; else behind the last pass that recognises)
//   # metadata: slots
//   # where: rank(weight) == 1, dim(weight, 0) == dim(x, -1)
//   # let: @eps = @epsilon
//   (x, weight) => (y) { square = either.Square (x)  ... }
//   # ---- either: Square pow      a part in one of its spellings
//   (x) => (s) { ... }
//   # ---- or: fused               a further whole spelling
//   (x, weight) => (y) { ... }
//   # ---- after
//   (x, weight) => (y) { ... }
//
// `# match-op: pagefuse.Op` in place of the first text matches the decompositions of an op. A new
// `# rule:` starts the next rule.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/authoring/condition_value.h"
#include "pagefuse/passes/authoring/rewrite.h"
#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/rule.h"

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

// All spellings of a rule together may be this many.
inline constexpr int kMaxSpellings = 256;

// What the rules of a file are a pass of: "mine" of "dir/mine.rules.txt".
std::string RulePassName(const std::string& path);

// The last pass that recognises; rules that name no place run behind it.
inline constexpr std::string_view kLastRecognised = "gated-mlp";

// The rules of a file, in order; where they say that they stand is left out.
absl::StatusOr<std::vector<Rule>> ParseRules(const RuleFile& file);

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
