// SPDX-License-Identifier: Apache-2.0
// Rewrites by number and place, and their numbers on values that were kept.
#include "pagefuse/passes/verify/value_bank.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/verify/rewrite_watch.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Model Parse(std::string_view text) {
  Model model = Must(ParseModel(text));
  EXPECT_TRUE(InferShapes(model).ok());
  return model;
}

constexpr std::string_view kChain = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (float[T] x, float[T] z) => (float[T] y, float[T] w) {
    a = Tanh (x)
    b = Neg (a)
    c = Add (b, z)
    y = Abs (c)
    w = Relu (z)
  })";

// Runs one rule over the model and returns what was seen of its rewrites.
std::vector<Rewrite> Watch(Model& model, Rule rule, int samples = 1) {
  RewriteWatch watch(model, {.verify = true, .samples = samples});
  std::vector<Rewrite> seen;
  PassContext context;
  context.after_rewrite = [&](const Model& now, std::string_view name) {
    seen.push_back(watch.After(now, "test", name));
    return absl::OkStatus();
  };
  const auto pass = MakeRulePass("test", "A test.", {std::move(rule)});
  EXPECT_TRUE(RunPass(*pass, model, context).ok());
  return seen;
}

Rule Swap(std::string_view from, std::string_view to) {
  return Rule("swap").MatchText(from).ReplaceWith(to);
}

TEST(RewriteWatch, KnowsThePlaceAndTheNodes) {
  Model model = Parse(kChain);
  const auto seen = Watch(model, Swap("(x) => (y) { t = Tanh (x) y = Neg (t) }",
                                      "(x) => (y) { n = Neg (x) y = Tanh (n) }"));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].number, 1);
  EXPECT_EQ(seen[0].at, "b");
  EXPECT_THAT(seen[0].taken, ElementsAre("a = Tanh (x)", "b = Neg (a)"));
  EXPECT_EQ(seen[0].made.size(), 2u);
  EXPECT_EQ(seen[0].numbers, Rewrite::Numbers::kEqual) << seen[0].detail;
}

TEST(RewriteWatch, SeesAnotherNumberWhereItStands) {
  Model model = Parse(kChain);
  const auto seen = Watch(model, Swap("(x) => (y) { y = Tanh (x) }", "(x) => (y) { y = Sin (x) }"),
                          /*samples=*/3);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].numbers, Rewrite::Numbers::kDiffer);
  EXPECT_EQ(RewriteName(seen[0], 1), "rewrite 1 of 1, pass test, rule swap at \"a\"");
  EXPECT_THAT(seen[0].detail, HasSubstr("element 0: expected "));
  EXPECT_THAT(seen[0].detail, HasSubstr("of 3 differ)"));
}

TEST(RewriteWatch, CountsNumbersThatAreNone) {
  Model model = Parse(kChain);
  const auto seen = Watch(model, Swap("(x) => (y) { y = Tanh (x) }",
                                      "(x) => (y) { r = Sqrt (x) n = Neg (r) q = Sqrt (n) y = "
                                      "Add (q, q) }"));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0].detail, HasSubstr("NaN 0 before, 3 after"));
}

TEST(RewriteWatch, ComparesTheNextRewriteWithWhatThisOneLeft) {
  Model model = Parse(kChain);
  RewriteWatch watch(model, {.verify = true});
  Graph& graph = *model.graph;
  Node* tanh = graph.FindValue("a")->producer();
  Value* other = graph.AddValue("other");
  graph.AddNode("", "Sin", {graph.FindValue("x")}, {other}, tanh);
  graph.ReplaceAllUses(graph.FindValue("a"), other);
  EXPECT_EQ(watch.After(model, "p", "wrong").numbers, Rewrite::Numbers::kDiffer);
  EXPECT_EQ(watch.After(model, "p", "nothing").numbers, Rewrite::Numbers::kEqual);
}

// A node that changes where it stands is judged by what its readers make of it.
TEST(RewriteWatch, AllowsValuesWhoseReadersAllChange) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { a = Neg (x) b = Neg (a) y = Abs (b) })");
  RewriteWatch watch(model, {.verify = true});
  Graph& graph = *model.graph;
  graph.FindValue("b")->producer()->SetInput(0, graph.FindValue("x"));
  const Rewrite unlike = watch.After(model, "p", "sign");
  EXPECT_EQ(unlike.numbers, Rewrite::Numbers::kDiffer);
  EXPECT_EQ(unlike.at, "a");
}

TEST(RewriteWatch, ComparesNothingWhereInputsChange) {
  Model model = Parse(kChain);
  RewriteWatch watch(model, {.verify = true});
  model.graph->AddInput("more", DataType::kFloat, Shape::FromInts({2}));
  const Rewrite rewrite = watch.After(model, "p", "adds");
  EXPECT_EQ(rewrite.numbers, Rewrite::Numbers::kNotCompared);
  EXPECT_EQ(rewrite.detail, "inputs or outputs changed");
  EXPECT_EQ(watch.After(model, "p", "nothing").numbers, Rewrite::Numbers::kEqual);
}

// What a graph in an attribute reads is read no longer once its node is gone, looked at or not.
TEST(RewriteWatch, KeepsNoGraphsAlive) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (bool c, float[2] x) => (float[2] y) {
      a = Neg (x)
      r = If (c) <then_branch = t () => (float[2] p) { p = Relu (a) },
                  else_branch = e () => (float[2] q) { q = Abs (a) }>
      y = Exp (r)
    })");
  RewriteWatch watch(model, {.verify = true});
  Graph& graph = *model.graph;
  const Value* inner = graph.FindValue("a");
  EXPECT_EQ(inner->uses().size(), 2u);
  Value* replaced = graph.FindValue("r");
  graph.ReplaceAllUses(replaced, graph.FindValue("x"));
  graph.EraseNode(replaced->producer());
  EXPECT_EQ(inner->uses().size(), 0u);
  const Rewrite rewrite = watch.After(model, "p", "drops");
  EXPECT_EQ(rewrite.numbers, Rewrite::Numbers::kDiffer);
  EXPECT_EQ(rewrite.at, "r");
}

constexpr std::string_view kRedundant = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (float[T] x) => (float[T] y) { a = Identity (x) b = Identity (a) c = Relu (b) y = Identity (c) })";

TEST(RewriteLimit, StopsBehindThatRewrite) {
  for (int64_t limit = 0; limit <= 2; ++limit) {
    Model model = Parse(kRedundant);
    const auto report = Must(RunPipeline(
        model,
        {.passes = {"simplify-shapes", "cse"}, .rewrite_limit = limit, .log_rewrites = true}));
    EXPECT_EQ(report.rewrites, limit);
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(static_cast<int64_t>(report.log.size()), limit);
    EXPECT_EQ(model.graph->num_nodes(), 4 - limit);
  }
}

TEST(RewriteLimit, IsNotReachedByFewerRewrites) {
  Model model = Parse(kRedundant);
  const auto report =
      Must(RunPipeline(model, {.passes = {"simplify-shapes"}, .rewrite_limit = 100}));
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(report.rewrites, 3);
}

TEST(VerifySummary, CountsByVerdictAndRule) {
  using Numbers = Rewrite::Numbers;
  const std::vector<Rewrite> rewrites = {{.number = 1,
                                          .pass = "p",
                                          .rule = "a",
                                          .at = "x",
                                          .taken = {},
                                          .made = {},
                                          .numbers = Numbers::kEqual},
                                         {.number = 2,
                                          .pass = "p",
                                          .rule = "b",
                                          .at = "x",
                                          .taken = {},
                                          .made = {},
                                          .numbers = Numbers::kDiffer},
                                         {.number = 3,
                                          .pass = "p",
                                          .rule = "p",
                                          .at = "x",
                                          .taken = {},
                                          .made = {},
                                          .numbers = Numbers::kNotCompared,
                                          .detail = "why"},
                                         {.number = 4,
                                          .pass = "q",
                                          .rule = "q",
                                          .at = "x",
                                          .taken = {},
                                          .made = {},
                                          .numbers = Numbers::kNotCompared,
                                          .detail = "why"}};
  EXPECT_EQ(VerifySummary(rewrites), "4 rewrites: 1 equal, 1 differ (b 1), 2 not compared");
  EXPECT_THAT(NotComparedLines(rewrites), ElementsAre("rewrites 3-4 of 4: not compared: why"));
}

}  // namespace
}  // namespace pagefuse
