// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/pipeline/pipeline_names.h"

#include <memory>
#include <set>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse {
namespace {

using Names = std::vector<std::string>;
using Passes = std::vector<std::unique_ptr<Pass>>;

constexpr std::string_view kAll = "*";

absl::Status CheckAll(std::string_view field, std::string_view what, const Names& given,
                      const Names& known) {
  for (const std::string& name : given) {
    if (absl::c_linear_search(known, name)) continue;
    return absl::NotFoundError(
        StrCat(field, ": there is no ", what, " \"", name, "\"", SimilarNames(name, known)));
  }
  return absl::OkStatus();
}

// A choice such as full=NAME,window=NAME stands for any list of its keys, each with a choice.
constexpr absl::string_view kAnyName = "=NAME";

bool FitsKeyed(const Names& choices, absl::string_view keyed, absl::string_view value) {
  const std::vector<std::string> keys = absl::StrSplit(keyed, ',');
  for (absl::string_view part : absl::StrSplit(value, ',')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (!absl::c_linear_search(keys, absl::StrCat(pair.first, kAnyName)) ||
        !absl::c_linear_search(choices, pair.second)) {
      return false;
    }
  }
  return true;
}

bool FitsChoices(const Names& choices, const std::string& value) {
  for (const std::string& choice : choices) {
    if (!absl::StrContains(choice, kAnyName)) {
      if (choice == value) return true;
    } else if (FitsKeyed(choices, choice, value)) {
      return true;
    }
  }
  return false;
}

// A number, or several with commas.
bool AreNumbers(const std::string& value) {
  for (absl::string_view part : absl::StrSplit(value, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number)) return false;
  }
  return true;
}

absl::Status CheckOption(const Passes& passes, const std::string& name, const std::string& value) {
  Names known;
  for (const auto& pass : passes) {
    for (const PassOption& option : pass->options()) {
      known.push_back(option.name);
      if (option.name != name) continue;
      if (option.is_text) return absl::OkStatus();
      const bool fits =
          option.choices.empty() ? AreNumbers(value) : FitsChoices(option.choices, value);
      if (fits) return absl::OkStatus();
      const std::string expected =
          option.choices.empty() ? "a number" : absl::StrJoin(option.choices, ", ");
      return absl::InvalidArgumentError(
          StrCat("option ", name, ": expected ", expected, ", got \"", value, "\""));
    }
  }
  return absl::NotFoundError(
      StrCat("options: there is no pass option \"", name, "\"", SimilarNames(name, known)));
}

// Those of the pipeline, and the rules of files in their places.
Passes AllPassesWith(const std::vector<PlacedPass>& rules) {
  Passes passes = AllPasses();
  PlaceRules(rules, passes);
  return passes;
}

}  // namespace

absl::Status CheckPipelineNames(const PipelineOptions& options,
                                const std::vector<PlacedPass>& rules) {
  if (options.left_out.empty() && options.disabled.empty() && options.print_after.empty() &&
      options.explain.empty() && options.options.empty()) {
    return absl::OkStatus();
  }
  const Passes passes = AllPassesWith(rules);
  Names pass_names, all_names;
  for (const auto& pass : passes) {
    pass_names.emplace_back(pass->name());
    for (const RuleSummary& rule : pass->rules()) all_names.push_back(rule.name);
  }
  PF_RETURN_IF_ERROR(CheckAll("disabled passes", "pass", options.disabled, pass_names));
  all_names.insert(all_names.end(), pass_names.begin(), pass_names.end());
  PF_RETURN_IF_ERROR(CheckAll("disabled rules", "rule", options.left_out, all_names));
  all_names.emplace_back(kAll);
  PF_RETURN_IF_ERROR(CheckAll("explain", "rule or pass", options.explain, all_names));
  pass_names.emplace_back(kAll);
  PF_RETURN_IF_ERROR(CheckAll("print after", "pass", options.print_after, pass_names));
  for (const auto& [name, value] : options.options) {
    PF_RETURN_IF_ERROR(CheckOption(passes, name, value));
  }
  return absl::OkStatus();
}

std::vector<PassRule> ExplainedRules(const Names& explain, const std::vector<PlacedPass>& rules) {
  std::vector<PassRule> explained;
  if (explain.empty()) return explained;
  std::set<std::string> seen;
  for (const auto& pass : AllPassesWith(rules)) {
    const std::string name(pass->name());
    if (!seen.insert(name).second) continue;
    const bool whole = absl::c_linear_search(explain, kAll) || absl::c_linear_search(explain, name);
    const std::vector<RuleSummary> rules = pass->rules();
    if (rules.empty() && whole) explained.push_back({name, name});
    for (const RuleSummary& rule : rules) {
      if (whole || absl::c_linear_search(explain, rule.name))
        explained.push_back({rule.name, name});
    }
  }
  return explained;
}

}  // namespace pagefuse
