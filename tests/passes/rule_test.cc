// SPDX-License-Identifier: Apache-2.0
// What files of before and after cannot say: provenance, errors in rules, convergence.
#include "pagefuse/passes/rewrite/rule.h"

#include <map>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Model Parse(std::string_view text) { return Must(ParseModel(text)); }

constexpr std::string_view kMlp = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  mlp (float[T, 8] gate, float[T, 8] up) => (float[T, 8] y) {
    s = Sigmoid (gate)
    silu = Mul (s, gate)
    y = Mul (up, silu)
  })";

Rule SiluRule() {
  return Rule("silu")
      .MatchText("(x, y) => (z) { s = Sigmoid (x)  silu = Mul (x, s)  z = Mul (silu, y) }")
      .ReplaceWith("(x, y) => (z) { z = mine.SiluMul (x, y) }");
}

absl::StatusOr<bool> Apply(const Rule& rule, Model& model, PassContext& context) {
  return RunPass(*MakeRulePass(rule.name(), "", {rule}), model, context);
}

std::string ErrorOf(const Rule& rule) { return std::string(rule.Compile().message()); }

TEST(Rule, NewNodesSayWhereTheyComeFrom) {
  Model model = Parse(kMlp);
  for (const auto& node : model.graph->nodes()) {
    node->name = StrCat("/mlp/", node->op_type(), node->output(0)->name());
    SetMetadata(node->metadata, "namespace", "layers.0");
    SetMetadata(node->metadata, "other", "goes");
  }
  PassContext context;
  EXPECT_TRUE(Must(Apply(SiluRule(), model, context)));
  EXPECT_EQ(context.counts.at("silu"), 1);

  ASSERT_EQ(model.graph->num_nodes(), 1);
  const Node& fused = *model.graph->nodes().front();
  EXPECT_TRUE(fused.Is("SiluMul", "mine"));
  EXPECT_EQ(fused.name, "/mlp/Muly");
  EXPECT_EQ(FindMetadata(fused.metadata, "pkg.pagefuse.rule"), "silu");
  EXPECT_EQ(FindMetadata(fused.metadata, "pkg.pagefuse.from"),
            "/mlp/Sigmoids,/mlp/Mulsilu,/mlp/Muly");
  EXPECT_EQ(FindMetadata(fused.metadata, "namespace"), "layers.0");
  EXPECT_FALSE(FindMetadata(fused.metadata, "other").has_value());
}

TEST(Rule, TheOutputKeepsItsNameTypeAndShape) {
  Model model = Parse(kMlp);
  PassContext context;
  ASSERT_TRUE(Apply(SiluRule(), model, context).ok());
  const Value* output = model.graph->outputs()[0];
  EXPECT_EQ(output->name(), "y");
  EXPECT_EQ(output->dtype(), DataType::kFloat);
  EXPECT_EQ(output->shape()->ToString(), "[T, 8]");
}

TEST(Rule, TheDomainOfANewNodeIsImported) {
  Model model = Parse(kMlp);
  PassContext context;
  ASSERT_TRUE(Apply(SiluRule(), model, context).ok());
  EXPECT_EQ(model.OpsetVersion("mine"), 1);
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
}

Rule PairRule() {
  return Rule("pair")
      .MatchText("(x, y) => (p, q) { p = Neg (x)  q = Abs (y) }")
      .ReplaceWith("(x, y) => (p, q) { p, q = mine.Pair (x, y) }");
}

TEST(Rule, AMatchWhoseInputNeedsItsOutputIsLeftAlone) {
  // b is computed from a, so one node for both would wait for itself.
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] b) {
      a = Neg (x)
      c = Exp (a)
      b = Abs (c)
    })");
  PassContext context;
  context.explain = true;
  EXPECT_FALSE(Must(Apply(PairRule(), model, context)));
  ASSERT_FALSE(context.misses.empty());
  EXPECT_EQ(context.misses[0].condition, "input \"c\" is computed from an output of the match");
}

TEST(Rule, ReadersBetweenTheMatchedNodesMoveBehindTheNewOne) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x, float[T] y) => (float[T] c, float[T] b) {
      a = Neg (x)
      c = Exp (a)
      b = Abs (y)
    })");
  PassContext context;
  EXPECT_TRUE(Must(Apply(PairRule(), model, context)));
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
  EXPECT_EQ(model.graph->nodes().front()->op_type(), "Pair");
}

// `c` reads `a` in a branch only, in front of the second matched node.
constexpr char kReadInABranch[] = R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x, float[T] y, bool[] t) => (float[T] c, float[T] b) {
      a = Neg (x)
      c = If <then_branch = yes () => (float[T] d) { d = Exp (a) },
              else_branch = no () => (float[T] e) { e = Exp (x) }> (t)
      b = Abs (@)
    })";
TEST(Rule, ReadersInSubgraphsMoveBehindTheNewNode) {
  Model model = Parse(absl::StrReplaceAll(kReadInABranch, {{"@", "y"}}));
  PassContext context;
  EXPECT_TRUE(Must(Apply(PairRule(), model, context)));
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
  EXPECT_EQ(model.graph->nodes().front()->op_type(), "Pair");
}

TEST(Rule, AMatchWhoseInputNeedsItsOutputInASubgraphIsLeftAlone) {
  Model model = Parse(absl::StrReplaceAll(kReadInABranch, {{"@", "c"}}));
  PassContext context;
  context.explain = true;
  EXPECT_FALSE(Must(Apply(PairRule(), model, context)));
  ASSERT_FALSE(context.misses.empty());
  EXPECT_EQ(context.misses[0].condition, "input \"c\" is computed from an output of the match");
}

TEST(Rule, ARuleThatFeedsItselfIsStopped) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { y = Neg (x) })");
  const Rule rule = Rule("grow")
                        .MatchText("(x) => (y) { y = Neg (x) }")
                        .ReplaceWith("(x) => (y) { a = Neg (x)  y = Neg (a) }");
  PassContext context;
  const auto changed = Apply(rule, model, context);
  EXPECT_EQ(changed.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(changed.status().message()), HasSubstr("keep rewriting"));
}

TEST(Rule, DerivedAttributesReachTheReplacement) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y)
    <float c = {4.0}> { y = Mul (x, c) })");
  const Rule rule = Rule("scale")
                        .MatchText(R"((x) => (y) {
                          c = Constant <value_float: float = @c> ()  y = Mul (x, c)
                        })")
                        .Derive([](Match& match) {
                          Attribute half;
                          half.value = std::get<float>(match.attributes.at("c").value) / 2;
                          match.attributes["half"] = half;
                          return absl::OkStatus();
                        })
                        .ReplaceWith("(x) => (y) { y = mine.Scale <by: float = @half> (x) }");
  PassContext context;
  Must(Apply(rule, model, context));
  EXPECT_EQ(model.graph->nodes().front()->FloatAttribute("by", 0).value_or(0), 2.0f);
}

TEST(Rule, ABuilderMayReturnAnInput) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { a = Neg (x)  y = Neg (a) })");
  const Rule rule = Rule("double-negation")
                        .MatchText("(x) => (y) { a = Neg (x)  y = Neg (a) }")
                        .ReplaceWith([](const Match& match, Graph&,
                                        Node*) -> absl::StatusOr<std::vector<Value*>> {
                          return std::vector<Value*>{match.value("x")};
                        });
  PassContext context;
  Must(Apply(rule, model, context));
  ASSERT_EQ(model.graph->num_nodes(), 1);
  EXPECT_EQ(model.graph->nodes().front()->op_type(), "Identity");
  EXPECT_EQ(model.graph->outputs()[0]->name(), "y");
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
}

TEST(Rule, EachMatchTakesItsOwnNodes) {
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x, float[T] y) => (float[T] a, float[T] b, float[T] c, float[T] d) {
      a = Neg (x)
      b = Abs (x)
      c = Neg (y)
      d = Abs (y)
    })");
  const Rule rule = Rule("pair")
                        .MatchText("(x) => (p, q) { p = Neg (x)  q = Abs (x) }")
                        .ReplaceWith("(x) => (p, q) { p, q = mine.Pair (x) }");
  PassContext context;
  ASSERT_TRUE(Apply(rule, model, context).ok());
  EXPECT_EQ(context.counts.at("pair"), 2);
  EXPECT_EQ(model.graph->num_nodes(), 2);
}

TEST(Rule, RejectsAPatternThatDoesNotParse) {
  const Rule rule = Rule("broken").MatchText("(x) => (y) { y = }").ReplaceWith("(x) => (y) {}");
  EXPECT_THAT(ErrorOf(rule), HasSubstr("rule \"broken\": pattern"));
}

TEST(Rule, RejectsAReplacementWithOtherOutputs) {
  const Rule rule = Rule("broken")
                        .MatchText("(x) => (y) { y = Neg (x) }")
                        .ReplaceWith("(x) => (y, z) { y = Neg (x)  z = Abs (x) }");
  EXPECT_EQ(ErrorOf(rule), "rule \"broken\": replacement: expected 1 outputs, got 2");
}

TEST(Rule, RejectsARuleWithoutReplacement) {
  const Rule rule = Rule("broken").MatchText("(x) => (y) { y = Neg (x) }");
  EXPECT_EQ(ErrorOf(rule), "rule \"broken\" has no replacement");
}

TEST(Rule, RejectsAPatternWithoutTheTypeThatTheRuleNeeds) {
  const Rule rule = Rule("broken")
                        .MatchText("(x) => (y) { a = Cast <to = 1> (x)  y = Neg (a) }", "cast")
                        .Needs("Neg")
                        .Needs("Cast")
                        .ReplaceWith("(x) => (y) { y = Abs (x) }");
  EXPECT_EQ(ErrorOf(rule),
            "rule \"broken\": pattern \"cast\" matches without a node of type Cast, which the rule "
            "says it needs");
}

TEST(Rule, ARuleIsNotCompiledWhereTheGraphLacksATypeThatItNeeds) {
  const Rule rule = Rule("broken").MatchText("(x) => (y) { y = }").Needs("Tanh").ReplaceWith("");
  Model model = Parse(kMlp);
  PassContext context;
  EXPECT_FALSE(Must(Apply(rule, model, context)));
}

TEST(Pattern, NeedsTheTypesOfTheNodesThatNoGraphCanLeaveOut) {
  const auto pattern = Must(CompilePattern({.name = "p",
                                            .text = R"(
    (x, y, shape) => (z) {
      s = Shape (x)
      start = Constant <value_ints = [0]> ()
      end = Constant <value_ints = [2]> ()
      part = Slice (y, start, end)
      wide = Expand (part, s)
      flat = Reshape (wide, shape)
      bits = Cast <to = 7> (flat)
      sum = MatMul (bits, x)
      less = Less (sum, y)
      z = Where (less, sum, bits)
    })",
                                            .metadata_inputs = {}}));
  EXPECT_THAT(pattern->needed_types, ElementsAre("Less", "MatMul", "Slice", "Where"));
}

TEST(Rule, AMirroredNodeIsAsGoodAsTheOneThatThePatternNeeds) {
  const Rule rule = Rule("mirror")
                        .MatchText("(x, y) => (z) { less = Less (x, y)  z = Where (less, x, y) }")
                        .ReplaceWith("(x, y) => (z) { z = Min (x, y) }");
  Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[8] x, float[8] y) => (float[8] z) {
      more = Greater (y, x)
      z = Where (more, x, y)
    })");
  PassContext context;
  EXPECT_TRUE(Must(Apply(rule, model, context)));
}

constexpr std::string_view kTwoNegations = R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { a = Neg (x)  y = Neg (a) })";
constexpr std::string_view kNegations = "(x) => (y) { a = Neg (x)  y = Neg (a) }";

TEST(Rule, RejectsAReplacementThatNoGraphRuns) {
  for (const auto& [text, why] : std::map<std::string, std::string>{
           {"pagefuse.NoSuchOp (x)", "pagefuse.NoSuchOp"},
           {"Neg <slope = 2.0> (x)", "Neg: there is no attribute \"slope\""},
           {"Add (x)", "Add: input 1 \"B\" is missing"}}) {
    Model model = Parse(kTwoNegations);
    const Rule rule =
        Rule("wrong").MatchText(kNegations).ReplaceWith(StrCat("(x) => (y) { y = ", text, " }"));
    PassContext context;
    const absl::Status status = Apply(rule, model, context).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rule \"wrong\" writes "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_EQ(model.graph->num_nodes(), 2);
  }
}

TEST(Rule, RejectsWhatABuilderWritesAndNoGraphRuns) {
  Model model = Parse(kTwoNegations);
  const Rule rule = Rule("wrong")
                        .MatchText(kNegations)
                        .ReplaceWith([](const Match& match, Graph& graph, Node* anchor) {
                          GraphBuilder build(graph, anchor, "wrong");
                          return absl::StatusOr<std::vector<Value*>>(
                              {build.Add("Neg", {match.value("x")}, {{"slope", int64_t{2}}})});
                        });
  PassContext context;
  const absl::Status status = Apply(rule, model, context).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no attribute \"slope\""));
  EXPECT_EQ(model.graph->num_nodes(), 2);
}

TEST(Rule, RejectsAnUnknownOp) {
  const Rule rule = Rule("broken").MatchDecompositionOf("pagefuse.NoSuchOp");
  EXPECT_EQ(ErrorOf(rule), "rule \"broken\": there is no op \"pagefuse.NoSuchOp\"");
}

}  // namespace
}  // namespace pagefuse
