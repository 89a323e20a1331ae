// SPDX-License-Identifier: Apache-2.0
// The runner: what it reports, dumps and refuses.
#include "pagefuse/passes/pipeline/pipeline.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Model Parse(std::string_view text) { return Must(ParseModel(text)); }

constexpr std::string_view kDoubled = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (float[T] x) => (float[T] y) {
    two = Constant <value_float = 2.0> ()
    same = Identity (x)
    y = Mul (same, two)
  })";

TEST(Pipeline, RunsTheNamedPassesInOrder) {
  Model model = Parse(kDoubled);
  const auto report =
      Must(RunPipeline(model, {.passes = {"simplify-shapes", "cse"}, .verify = true}));
  ASSERT_EQ(report.runs.size(), 2u);
  EXPECT_EQ(report.runs[0].name, "simplify-shapes");
  EXPECT_TRUE(report.runs[0].changed);
  EXPECT_EQ(report.runs[0].verified, "equal");
  EXPECT_EQ(report.runs[0].nodes_after, 2);
  EXPECT_FALSE(report.runs[1].changed);
  EXPECT_EQ(report.counts.at("remove-identity"), 1);
}

TEST(Pipeline, SkipsDisabledPasses) {
  Model model = Parse(kDoubled);
  const auto report = Must(RunPipeline(
      model, {.passes = {"constant-folding", "simplify-shapes"}, .disabled = {"simplify-shapes"}}));
  ASSERT_EQ(report.runs.size(), 1u);
  EXPECT_EQ(report.runs[0].name, "constant-folding");
}

TEST(Pipeline, PrintsTheGraphAfterAPass) {
  Model model = Parse(kDoubled);
  std::ostringstream out;
  ASSERT_TRUE(
      RunPipeline(model,
                  {.passes = {"simplify-shapes", "cse"}, .print_after = {"*"}, .print_to = &out})
          .ok());
  EXPECT_THAT(out.str(), HasSubstr("# after simplify-shapes\n"));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("# after cse")));
}

TEST(Pipeline, RefusesAnUnknownPassWithTheNearestNames) {
  Model model = Parse(kDoubled);
  const auto report = RunPipeline(model, {.passes = {"csa"}});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("similar names: \"cse\""));
}

TEST(Pipeline, PrintsTensorsUpToTheSizeThatIsAskedFor) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { same = Identity (x) y = Mul (same, w) })");
  std::ostringstream out;
  const PipelineOptions options = {.passes = {"simplify-shapes"},
                                   .print_after = {"simplify-shapes"},
                                   .print_to = &out,
                                   .print_max_elements = 2};
  ASSERT_TRUE(RunPipeline(model, options).ok());
  EXPECT_THAT(out.str(), HasSubstr("float[3] w = ..."));
}

// What a pipeline says that may not run at all.
std::string RefusalOf(const PipelineOptions& options) {
  Model model = Parse(kDoubled);
  const auto report = RunPipeline(model, options);
  return std::string(report.status().message());
}

TEST(Pipeline, RefusesNamesThatNoPassRuleOrOptionHas) {
  EXPECT_EQ(RefusalOf({.disabled = {"swush"}}),
            "disabled passes: there is no pass \"swush\"; similar names: \"swish\"");
  EXPECT_EQ(RefusalOf({.print_after = {"swush"}}),
            "print after: there is no pass \"swush\"; similar names: \"swish\"");
  EXPECT_EQ(RefusalOf({.explain = {"swish-alpah"}}),
            "explain: there is no rule or pass \"swish-alpah\"; similar names: \"swish-alpha\", "
            "\"swish\"");
  EXPECT_EQ(RefusalOf({.options = {{"kv_cahe", "none"}}}),
            "options: there is no pass option \"kv_cahe\"; similar names: \"kv_cache\"");
  EXPECT_EQ(RefusalOf({.options = {{"logits", "first"}}}),
            "option logits: expected last, all, got \"first\"");
  EXPECT_EQ(RefusalOf({.options = {{"k_scale", "large"}}}),
            "option k_scale: expected a number, got \"large\"");
  EXPECT_EQ(RefusalOf({.disabled = {"swish"},
                       .options = {{"logits", "all"}, {"k_scale", "0.5"}},
                       .print_after = {"*"},
                       .explain = {"*", "swish", "swish-alpha"}}),
            "");
}

TEST(SimilarNames, AreNearOrHoldTheName) {
  const std::vector<std::string> names = {"cse", "dead-code", "insert-paged-cache", "rope",
                                          "fuse-rope-quant"};
  EXPECT_EQ(SimilarNames("csa", names), "; similar names: \"cse\"");
  EXPECT_EQ(SimilarNames("dead_code", names), "; similar names: \"dead-code\"");
  EXPECT_EQ(SimilarNames("Rope-Quant", names), "; similar names: \"fuse-rope-quant\", \"rope\"");
  EXPECT_EQ(SimilarNames("paged-cache", names), "; similar names: \"insert-paged-cache\"");
}

TEST(SimilarNames, AreNoneWhereNoneIsAlike) {
  EXPECT_EQ(SimilarNames("attention", {"cse", "dead-code", "rope"}), "");
  EXPECT_EQ(SimilarNames("x", {"cse", "rope"}), "");
  EXPECT_EQ(SimilarNames("", {"cse"}), "");
  EXPECT_EQ(SimilarNames(std::string(100000, 'c'), {"cse"}), "");
}

TEST(Pipeline, LeavesAReproducerOfAFailure) {
  // The two sides of the sum do not broadcast, which inference reports.
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) })");
  const std::string dir = testing::TempDir() + "/pagefuse_reproducer";
  std::filesystem::remove_all(dir);
  const auto report = RunPipeline(
      model, {.passes = {"cse"}, .options = {{"logits", "all"}}, .reproducer_dir = dir});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("pass \"cse\": "));
  const auto command = Must(ReadFile(dir + "/cse.sh"));
  EXPECT_THAT(command, HasSubstr("opt --passes=cse --option 'logits=all' "));
  const auto graph = Must(ReadFile(dir + "/cse.onnxtxt"));
  EXPECT_TRUE(ParseModel(graph).ok());
}

TEST(Pipeline, DefaultPipelineChangesNothingTheSecondTime) {
  Model model = Parse(kDoubled);
  ASSERT_TRUE(RunPipeline(model, {.page = false}).ok());
  const auto again = Must(RunPipeline(model, {.page = false}));
  for (const PassRun& run : again.runs) EXPECT_FALSE(run.changed) << run.name;
}

// One reads it as it lies, one as a stack of its heads; it is larger than what is computed early. What
// is excluded stays so in every run of the pass.
TEST(Pipeline, StoresAMatrixForBothOfItsReaders) {
  const std::string ones = absl::StrJoin(std::vector<int>(128 * 256, 1), ",");
  Model model = Parse(absl::StrReplaceAll(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T, 128] x, float[2, T, 128] u) => (float[T, 256] y, float[2, T, 128] z, float[T, 256] k)
    <float[128, 256] w = {ONES}, float[128, 256] v = {ONES}, int64[3] by_head = {128, 2, 128}>
    {
      y = MatMul (x, w)
      matrix = Reshape (w, by_head)
      stack = Transpose <perm = [1, 0, 2]> (matrix)
      z = MatMul (u, stack)
      k = MatMul (x, v)
    })",
                                          {{"ONES", ones}}));
  PipelineOptions options{.page = false};
  options.options = {{"weights", "bf16"}, {"weights_exclude", "v"}};
  ASSERT_TRUE(RunPipeline(model, options).ok());
  std::vector<std::string> ops;
  for (const auto& node : model.graph->nodes()) ops.push_back(node->op_type());
  EXPECT_THAT(ops, testing::UnorderedElementsAre("Linear", "Linear", "MatMul"));
}

// A pass that runs twice tells of what it leaves in the end, not of what the first run could not do yet.
TEST(Pipeline, TellsOfAMatrixWhileOneOfItsReadersKeepsIt) {
  const auto misses_of = [](const std::string& excluded) {
    Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[T, 16] x, float[2, T, 16] heads) => (float[T, 2] y, float[2, T, 1] z)
      <float[16, 2] w = {)" +
                        absl::StrJoin(std::vector<int>(32, 1), ", ") +
                        R"(}, int64[3] by_head = {16, 2, 1}> {
        y = MatMul (x, w)
        matrix = Reshape (w, by_head)
        stack = Transpose <perm = [1, 0, 2]> (matrix)
        z = MatMul (heads, stack)
      })");
    const auto report = Must(RunPipeline(
        model, {.passes = {"fold-weights", "quantise-weights", "fold-weights", "quantise-weights"},
                .options = {{"weights", "bf16"}, {"weights_exclude", excluded}},
                .explain = {"quantise-weights"}}));
    std::vector<std::string> told;
    for (const MissedMatch& miss : report.misses)
      told.push_back(StrCat(miss.at, ": ", miss.condition));
    return told;
  };
  EXPECT_THAT(misses_of(""), testing::IsEmpty());
  EXPECT_THAT(misses_of("y"),
              ElementsAre("y: \"y\" is excluded",
                          HasSubstr("z: weight \"stack\": expected a constant, got")));
}

TEST(CompareModels, SeesAnotherNumber) {
  const Model before = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) <float c = {1.0}> { y = Add (x, c) })");
  const Model after = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) <float c = {1.001}> { y = Add (x, c) })");
  const auto compared = CompareOnRandomInputs(before, after);
  EXPECT_EQ(compared.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(compared.status().message()), HasSubstr("output \"y\": element 0"));
}

// Whether a product with `factor` counts as one with 1, computed in `type` between two casts.
bool CountsAsOne(std::string_view type, int code, std::string_view factor) {
  const auto model = [&](std::string_view by) {
    Model parsed = Parse(StrCat(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[T] x) => (float[T] y) <double c = {)",
                                by, R"(}> {
        n = Cast <to = )",
                                code, R"(> (x)
        f = Cast <to = )",
                                code, R"(> (c)
        p = Mul (n, f)
        y = Cast <to = 1> (p)
      })"));
    EXPECT_TRUE(InferShapes(parsed).ok()) << type;
    return parsed;
  };
  return CompareOnRandomInputs(model("1.0"), model(factor)).ok();
}

// A decoder of two graphs. `result`: what the graph with a past gives as its keys.
std::string Merged(const std::string& result) {
  return R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (int64[B, S] input_ids, float[B, 2, P, 4] past_key_0, float[B, 2, P, 4] past_value_0, bool[1] use_cache_branch)
    => (float[B, S, 8] logits, float[B, 2, T, 4] present_key_0, float[B, 2, T, 4] present_value_0)
  <float[3, 8] table = {-5, 2, -2, 5, 1, -3, 4, 0, -4, 3, -1, -5, 2, -2, 5, 1, -3, 4, 0, -4, 3, -1, -5, 2},
   int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}> {
    logits, present_key_0, present_value_0 = If (use_cache_branch) <
      then_branch = with () => (float[B, S, 8] a, float[B, 2, T, 4] keys, float[B, 2, T, 4] values) {
        rows = Gather (table, input_ids)
        apart = Reshape (rows, split)
        q = Transpose <perm = [0, 2, 1, 3]> (apart)
        y, all, values = Attention <is_causal = 1, scale = 0.5> (q, q, q, "", past_key_0, past_value_0)
        keys = )" +
         result + R"( (all)
        back = Transpose <perm = [0, 2, 1, 3]> (y)
        a = Reshape (back, join)
      },
      else_branch = without () => (float[B, S, 8] b, float[B, 2, S, 4] k, float[B, 2, S, 4] v) {
        rows = Gather (table, input_ids)
        apart = Reshape (rows, split)
        k = Transpose <perm = [0, 2, 1, 3]> (apart)
        v = Identity (k)
        y = Attention <is_causal = 1, scale = 0.5> (k, k, v)
        back = Transpose <perm = [0, 2, 1, 3]> (y)
        b = Reshape (back, join)
      }
    >
  })";
}

TEST(Pipeline, PagesAMergedDecoderByTheBranchThatReadsItsPasts) {
  Model model = Parse(Merged("Identity"));
  const auto report = RunPipeline(model, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->why_not_paged, "");
  EXPECT_EQ(model.graph->FindValue("use_cache_branch"), nullptr);
  EXPECT_TRUE(report->counts.contains("insert-paged-cache"));
}

TEST(Pipeline, LeavesAMergedDecoderItsChoiceWithoutPages) {
  Model model = Parse(Merged("Neg"));
  const auto report = RunPipeline(model, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->why_not_paged, HasSubstr("present"));
  const Value* choice = model.graph->FindValue("use_cache_branch");
  ASSERT_NE(choice, nullptr);
  EXPECT_TRUE(choice->is_input());
  Model alone = Parse(Merged("Identity"));
  ASSERT_TRUE(RunPipeline(alone, {.page = false}).ok());
  EXPECT_NE(alone.graph->FindValue("use_cache_branch"), nullptr);
}

TEST(CompareModels, AllowsWhatTheComputingTypeRounds) {
  EXPECT_TRUE(CountsAsOne("bfloat16", 16, "1.008"));
  EXPECT_FALSE(CountsAsOne("float16", 10, "1.008"));
  EXPECT_TRUE(CountsAsOne("float16", 10, "1.001"));
  EXPECT_FALSE(CountsAsOne("float", 1, "1.001"));
  EXPECT_TRUE(CountsAsOne("float", 1, "1.00001"));
}

TEST(CompareModels, ComparesDoubleCloserThanFloat) {
  const auto model = [](std::string_view addend) {
    Model parsed = Parse(StrCat(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (double[T] x) => (double[T] y) <double c = {)",
                                addend, R"(}> { y = Add (x, c) })"));
    EXPECT_TRUE(InferShapes(parsed).ok());
    return parsed;
  };
  EXPECT_FALSE(CompareOnRandomInputs(model("1.0"), model("1.00001")).ok());
  EXPECT_TRUE(CompareOnRandomInputs(model("1.0"), model("1.000000000000001")).ok());
}

TEST(CompareModels, SaysThatInputsChanged) {
  const Model before = Parse(kDoubled);
  const Model after = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] other) => (float[T] y) { y = Neg (other) })");
  EXPECT_EQ(CompareOnRandomInputs(before, after).value_or(""), "inputs or outputs changed");
}

TEST(RandomFeeds, StayInsideWhatTheyIndex) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[5, 2] table, int64[N] ids, int64[N] attention_mask, int64[N] position_ids,
       int64[4] slot_mapping) => (float[N, 2] y, int64[N] m, int64[N] p, float[4, 2] z) {
      y = Gather (table, ids)
      m = Abs (attention_mask)
      p = Abs (position_ids)
      z = Gather (table, slot_mapping)
    })");
  const auto feeds = Must(RandomFeeds(model, 0));
  for (int64_t id : feeds.at("ids").values<int64_t>()) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 5);
  }
  for (int64_t mask : feeds.at("attention_mask").values<int64_t>()) EXPECT_EQ(mask, 1);
  EXPECT_THAT(feeds.at("position_ids").values<int64_t>(), ElementsAre(0, 1, 2));
  const auto slots = feeds.at("slot_mapping").values<int64_t>();
  EXPECT_EQ(std::set<int64_t>(slots.begin(), slots.end()).size(), 4u);
}

// docs/passes.md, from the passes themselves.
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

TEST(PassReference, IsWhatTheDocumentationHolds) {
  const std::string path = SourcePath("docs/passes.md");
  if (std::getenv("PAGEFUSE_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << PassReference();
  }
  const auto page = Must(ReadFile(path));
  EXPECT_EQ(page, PassReference()) << "docs/passes.md is stale; run with PAGEFUSE_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace pagefuse
