// SPDX-License-Identifier: Apache-2.0
// Runs a pass test file.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/canonical_text.h"
#include "pagefuse/passes/debug/pass_case.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

// The tolerance of numbers before and after a few passes over a small graph.
constexpr double kCaseTolerance = 1e-5;

std::string Whole(const Model& model) {
  return PrintModel(model, {.max_elements = -1, .value_infos = false});
}

std::string Names(const std::vector<MissedMatch>& misses) {
  std::string text;
  for (const MissedMatch& miss : misses) {
    StrAppend(&text, "  ", miss.rule, " at \"", miss.at, "\": ", miss.condition, "\n");
  }
  return text.empty() ? "  nothing\n" : text;
}

class CaseRun {
 public:
  explicit CaseRun(const PassCase& test) : test_(test) {}

  CaseResult Run() {
    const absl::Status status = Check();
    if (!status.ok()) Fail(StdView(status.message()));
    return std::move(result_);
  }

  absl::StatusOr<std::set<std::string>> Fired() {
    PF_ASSIGN_OR_RETURN(rules_, ReadRuleFiles(test_.rules));
    PF_ASSIGN_OR_RETURN(Model model, ParseModel(test_.before));
    bool changed = false;
    const absl::Status status = RunPasses(model, changed, /*explain=*/false);
    if (test_.outcome != PassCase::Outcome::kError) PF_RETURN_IF_ERROR(status);
    return fired_;
  }

 private:
  void Fail(std::string_view what) { result_.failures.emplace_back(what); }

  absl::Status Check() {
    PF_ASSIGN_OR_RETURN(rules_, ReadRuleFiles(test_.rules));
    PF_ASSIGN_OR_RETURN(Model model, ParseModel(test_.before));
    PF_RETURN_IF_ERROR(Verify(model));
    const Model before = model.Clone();
    bool changed = false;
    const absl::Status status = RunPasses(model, changed, /*explain=*/true);
    if (test_.outcome == PassCase::Outcome::kError) return CheckError(status);
    PF_RETURN_IF_ERROR(status);
    result_.updated = Updated(model, changed);
    PF_RETURN_IF_ERROR(InferShapes(model));
    PF_RETURN_IF_ERROR(CheckGraph(before, model));
    const bool expected = test_.outcome == PassCase::Outcome::kAfter;
    if (changed != expected)
      Fail(changed ? "a pass changed the graph" : "no pass changed the graph");
    CheckReasons();
    PF_RETURN_IF_ERROR(CheckUnexplained(before.Clone(), model));
    if (test_.compare_numbers && changed) PF_RETURN_IF_ERROR(CheckNumbers(before, model));
    return CheckSecondRun(model);
  }

  absl::Status CheckError(const absl::Status& status) {
    if (StdView(status.message()) != test_.error) {
      Fail(StrCat("expected the error: ", test_.error, "\ngot: ", status.message()));
    }
    return absl::OkStatus();
  }

  // Runs the passes of the case. What each says of `changed` is checked against the graph's text.
  absl::Status RunPasses(Model& model, bool& changed, bool explain) {
    changed = false;
    for (const std::string& name : test_.passes) {
      std::vector<std::unique_ptr<Pass>> passes = RulePasses(rules_, name);
      if (passes.empty()) {
        PF_ASSIGN_OR_RETURN(passes.emplace_back(), FindPass(name));
      }
      for (const auto& pass : passes) PF_RETURN_IF_ERROR(RunOne(*pass, model, changed, explain));
    }
    return absl::OkStatus();
  }

  absl::Status RunOne(const Pass& pass, Model& model, bool& changed, bool explain) {
    PassContext context;
    context.options = test_.options;
    context.explain = explain;
    context.after_rewrite = [](const Model& now, std::string_view rule) {
      const absl::Status status = Verify(now);
      if (status.ok()) return status;
      return absl::InternalError(StrCat("after a rewrite by ", rule, ": ", status.message()));
    };
    // Inference may say more of an output than the file does; that is no change by the pass.
    PF_RETURN_IF_ERROR(InferShapes(model));
    const std::string before = Whole(model);
    PF_ASSIGN_OR_RETURN(const bool pass_changed, RunPass(pass, model, context));
    if (pass_changed != (before != Whole(model))) {
      Fail(StrCat(pass.name(), " does not tell the truth about `changed`"));
    }
    PF_RETURN_IF_ERROR(Verify(model));
    changed = changed || pass_changed;
    misses_.insert(misses_.end(), context.misses.begin(), context.misses.end());
    for (const auto& [rule, count] : context.counts) fired_.insert(rule);
    return absl::OkStatus();
  }

  void CheckReasons() {
    for (const PassCase::Because& because : test_.because) {
      const bool found = std::ranges::any_of(misses_, [&](const MissedMatch& miss) {
        return miss.rule == because.rule && miss.at == because.at &&
               miss.condition == because.reason;
      });
      if (found) continue;
      Fail(StrCat("expected ", because.rule, " at \"", because.at, "\": ", because.reason,
                  "\ngot:\n", Names(misses_)));
    }
  }

  absl::Status CheckGraph(const Model& before, const Model& model) {
    Model expected = before.Clone();
    if (test_.outcome != PassCase::Outcome::kUnchanged) {
      PF_ASSIGN_OR_RETURN(expected, ParseModel(test_.after));
    }
    if (!test_.after_has_header) expected.opset_imports = model.opset_imports;
    // Types are inferred on both sides, so that declared and inferred outputs look alike.
    PF_RETURN_IF_ERROR(InferShapes(expected));
    const std::string wanted = CanonicalText(expected);
    const std::string got = CanonicalText(model);
    if (wanted != got) Fail(TextDiff(wanted, got));
    return absl::OkStatus();
  }

  // What nobody asks to explain is given up earlier, and comes to the same.
  absl::Status CheckUnexplained(Model before, const Model& model) {
    bool changed = false;
    PF_RETURN_IF_ERROR(RunPasses(before, changed, /*explain=*/false));
    PF_RETURN_IF_ERROR(InferShapes(before));
    const std::string wanted = CanonicalText(model);
    const std::string got = CanonicalText(before);
    if (wanted != got) {
      Fail(StrCat("explained and not are two things:\n", TextDiff(wanted, got)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNumbers(const Model& before, const Model& model) {
    PF_ASSIGN_OR_RETURN(const std::string compared,
                        CompareOnRandomInputs(before, model, kCaseTolerance));
    if (compared != kVerifiedEqual) Fail(StrCat("numbers were not compared: ", compared));
    return absl::OkStatus();
  }

  absl::Status CheckSecondRun(Model& model) {
    const std::string once = PrintModel(model);
    bool changed = false;
    PF_RETURN_IF_ERROR(RunPasses(model, changed, /*explain=*/true));
    if (changed) {
      Fail(StrCat("a second run changes the graph:\n", TextDiff(once, PrintModel(model))));
    }
    return absl::OkStatus();
  }

  std::string Updated(const Model& model, bool changed) const {
    if (changed) return StrCat(test_.head, "# ---- after\n", Whole(model));
    std::string text = StrCat(test_.head, "# ---- after: unchanged\n");
    for (const MissedMatch& miss : misses_) {
      StrAppend(&text, "# because ", miss.rule, " at \"", miss.at, "\": ", miss.condition, "\n");
    }
    return text;
  }

  const PassCase& test_;
  std::vector<PlacedPass> rules_;
  CaseResult result_;
  std::vector<MissedMatch> misses_;
  std::set<std::string> fired_;
};

}  // namespace

CaseResult RunPassCase(const PassCase& test) { return CaseRun(test).Run(); }

absl::StatusOr<std::set<std::string>> RulesThatFire(const PassCase& test) {
  return CaseRun(test).Fired();
}

}  // namespace pagefuse
