// SPDX-License-Identifier: Apache-2.0
// Every rule on shapes whose axes it may take for each other: the graphs of tests/passes with all
// sizes different, with all of them 2, and with all of them 1. Where such a graph runs, it gives the
// same numbers before the passes and behind them.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/debug/pass_case.h"
#include "pagefuse/passes/debug/shrink_sizes.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

constexpr double kCaseTolerance = 1e-5;

// Sizes of symbols by the attempt of RandomFeeds, and what numbers above it are made; 0: they stay.
struct Sizes {
  int attempt = 0;
  int64_t numbers = 0;
};
constexpr Sizes kDifferent = {0, 0}, kTwos = {4, 2}, kOnes = {3, 1};

std::vector<std::string> PassFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(SourcePath("tests/passes"))) {
    if (entry.path().extension() == ".onnxtxt") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Model Resized(const Model& model, int64_t numbers) {
  ReduceCase resized{.model = model.Clone(), .feeds = {}};
  if (numbers == 0) return std::move(resized.model);
  for (const CaseSize& size : SizesOf(resized)) {
    if (size.size <= numbers) continue;
    if (auto smaller = WithSize(resized, size, numbers)) resized = *std::move(smaller);
  }
  return std::move(resized.model);
}

absl::Status RunPasses(const PassCase& test, Model& model) {
  PF_ASSIGN_OR_RETURN(const auto rules, ReadRuleFiles(test.rules));
  for (const std::string& name : test.passes) {
    std::vector<std::unique_ptr<Pass>> passes = RulePasses(rules, name);
    if (passes.empty()) {
      PF_ASSIGN_OR_RETURN(passes.emplace_back(), FindPass(name));
    }
    for (const auto& pass : passes) {
      PassContext context;
      context.options = test.options;
      PF_RETURN_IF_ERROR(InferShapes(model));
      PF_RETURN_IF_ERROR(RunPass(*pass, model, context).status());
    }
  }
  return InferShapes(model);
}

// Whether the graph ran; an error if its numbers are others behind the passes.
absl::StatusOr<bool> Compare(const PassCase& test, Sizes sizes) {
  PF_ASSIGN_OR_RETURN(const Model whole, ParseModel(test.before));
  Model before = Resized(whole, sizes.numbers);
  if (!InferShapes(before).ok()) return false;
  const auto feeds = RandomFeeds(before, sizes.attempt);
  const auto expected = feeds.ok() ? EvaluateModel(before, *feeds) : feeds.status();
  if (!expected.ok()) return false;
  Model after = before.Clone();
  PF_RETURN_IF_ERROR(RunPasses(test, after));
  if (!SameInterface(InterfaceOf(*before.graph), InterfaceOf(*after.graph))) return false;
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> got, EvaluateModel(after, *feeds));
  for (size_t i = 0; i < got.size(); ++i) {
    PF_RETURN_IF_ERROR(
        CompareTensors(before.graph->outputs()[i]->name(), (*expected)[i], got[i], kCaseTolerance));
  }
  return true;
}

// How many of the cases ran.
int CompareAll(Sizes sizes) {
  int compared = 0;
  for (const std::string& path : PassFiles()) {
    const auto test = Must(ReadPassCase(path));
    // What a case names may not be there in another size.
    const bool named = test.options.contains("weights_exclude");
    if (!test.compare_numbers || !test.plugins.empty() || named ||
        test.outcome == PassCase::Outcome::kError) {
      continue;
    }
    const absl::StatusOr<bool> ran = Compare(test, sizes);
    EXPECT_TRUE(ran.ok()) << path << ": " << ran.status();
    compared += ran.ok() && *ran ? 1 : 0;
  }
  return compared;
}

TEST(PassShapes, DifferentSizesGiveTheSameNumbers) { EXPECT_GE(CompareAll(kDifferent), 100); }
TEST(PassShapes, TwosGiveTheSameNumbers) { EXPECT_GE(CompareAll(kTwos), 100); }
TEST(PassShapes, OnesGiveTheSameNumbers) { EXPECT_GE(CompareAll(kOnes), 100); }

}  // namespace
}  // namespace pagefuse
