// The names that callers of a pipeline may use: of passes, rules and options.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/passes/pipeline.h"

namespace pagefuse {

// OK if every name in the options is one of a pass, a rule or an option, and every option with
// choices has one of them. NotFound or InvalidArgument naming the field, the name and similar ones.
// The names of `options.passes` are left to FindPass.
absl::Status CheckPipelineNames(const PipelineOptions& options);

// The names and, for each that is a pass, those of its rules.
std::set<std::string> ExplainedNames(const std::vector<std::string>& explain);

}  // namespace pagefuse
