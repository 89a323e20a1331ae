// SPDX-License-Identifier: Apache-2.0
// Checks the names of passes, rules and options that callers of a pipeline use.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/placed_rules.h"

namespace pagefuse {

// OK if every name in the options is one of a pass, a rule or an option, and every option with
// choices has one of them. NotFound or InvalidArgument naming the field, the name and similar ones.
// The names of `options.passes` are left to FindPass. `rules` are those of files.
absl::Status CheckPipelineNames(const PipelineOptions& options,
                                const std::vector<PlacedPass>& rules = {});

// A rule, or a pass that has none, and the pass that it is of.
struct PassRule {
  std::string name;
  std::string pass;
};

// What `explain` names, in the order of the pipeline: for a pass its rules, for "*" all.
std::vector<PassRule> ExplainedRules(const std::vector<std::string>& explain,
                                     const std::vector<PlacedPass>& rules = {});

}  // namespace pagefuse
