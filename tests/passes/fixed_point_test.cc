// SPDX-License-Identifier: Apache-2.0
// What is canonicalized and recognised is in its final form: no pass of those stages undoes another's
// word. Over the bundled models, the corpus and the inputs of all pass tests.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/canonical_text.h"
#include "pagefuse/passes/debug/pass_case.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

// Up to paging, and without what the last of them left behind.
std::vector<std::string> CanonicalStages() {
  std::vector<std::string> names;
  for (const auto& pass : DecoderPipeline()) {
    if (pass->name() == "insert-paged-cache") break;
    names.emplace_back(pass->name());
  }
  names.emplace_back("dead-code");
  return names;
}

// Taken apart for attention, and put together again where none came of it: the one word that a pass
// lends another.
bool IsLent(const Rewrite& rewrite) {
  return rewrite.pass == "last-axes-transpose" || rewrite.rule == "simplify-transpose";
}

// What a second run over the stages does; empty where nothing.
std::string SecondRun(Model model) {
  PipelineOptions options{.passes = CanonicalStages()};
  if (!RunPipeline(model, options).ok()) return "";  // refused, as the test of that pass says
  const std::string first = CanonicalText(model);
  options.log_rewrites = true;
  const auto again = RunPipeline(model, options);
  if (!again.ok()) return StrCat("fails: ", again.status().message());
  for (const Rewrite& rewrite : again->log) {
    if (!IsLent(rewrite)) return RewriteName(rewrite);
  }
  const std::string second = CanonicalText(model);
  return first == second ? "" : TextDiff(first, second);
}

std::vector<fs::path> Models(const fs::path& folder) {
  constexpr uintmax_t kMostBytes = 16 << 20;
  std::vector<fs::path> models;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx" && entry.path().extension() != ".onnxtxt") continue;
    if (entry.file_size() <= kMostBytes) models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

void CheckModels(const fs::path& folder, size_t at_least) {
  const std::vector<fs::path> models = Models(folder);
  EXPECT_GE(models.size(), at_least);
  for (const fs::path& path : models) {
    absl::StatusOr<Model> model = LoadModel(path.string(), {.allow_missing_data = true});
    ASSERT_TRUE(model.ok()) << path << ": " << model.status();
    EXPECT_EQ(SecondRun(*std::move(model)), "") << path;
  }
}

TEST(FixedPoint, OfBundledModels) { CheckModels(SourcePath("models"), 23); }

TEST(FixedPoint, OfTheCorpus) { CheckModels(CorpusFolder(""), 58); }

TEST(FixedPoint, OfInputsOfPassTests) {
  size_t graphs = 0;
  for (const fs::path& path : Models(SourcePath("tests/passes"))) {
    const auto test = ReadPassCase(path.string());
    ASSERT_TRUE(test.ok()) << path << ": " << test.status();
    absl::StatusOr<Model> model = ParseModel(test->before);
    if (!model.ok()) continue;
    ++graphs;
    EXPECT_EQ(SecondRun(*std::move(model)), "") << path;
  }
  EXPECT_GT(graphs, 450U);
}

}  // namespace
}  // namespace pagefuse
