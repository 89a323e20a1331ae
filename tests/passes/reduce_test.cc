// SPDX-License-Identifier: Apache-2.0
// The first bad rewrite by halving, and models that fail made small.
#include "pagefuse/passes/debug/reduce.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/bisect.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

Model Load(const std::string& name) {
  return Must(LoadModel(SourcePath("models/" + name + "/model.onnx")));
}

PipelineOptions WithWrongRules(std::vector<std::string> left_out) {
  const std::string path = SourcePath("tests/data/wrong.rules.txt");
  auto text = Must(ReadFile(path));
  PipelineOptions options{.page = false};
  options.left_out = std::move(left_out);
  options.rules = {{path, text}};
  return options;
}

struct Planted {
  const char* model;
  const char* rule;
  std::vector<std::string> left_out;
};

class PlantedRule : public testing::TestWithParam<Planted> {};

TEST_P(PlantedRule, IsFoundAndItsModelMadeSmall) {
  const Model model = Load(GetParam().model);
  const PipelineOptions options = WithWrongRules(GetParam().left_out);
  const auto judge = Must(OutputJudge(model, options));
  const auto bisection = Must(Bisect(model, options, judge));
  ASSERT_TRUE(bisection.bad.has_value());
  EXPECT_EQ(bisection.bad->rule, GetParam().rule) << BisectionText(bisection);

  const std::optional<int64_t> number = FirstDifference(model, options);
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(*number, bisection.bad->number);
  const auto later = Must(ModelBefore(model, options, *number));
  const auto reduced = Must(Reduce(model, VerifyCheck(options), {.later = &later}));
  EXPECT_EQ(reduced.reason, GetParam().rule);
  // One op is enough for each of the rules, and one number.
  EXPECT_EQ(reduced.after.nodes, 1) << PrintModel(reduced.smallest.model);
  const Graph& graph = *reduced.smallest.model.graph;
  EXPECT_EQ(graph.outputs()[0]->shape()->ToString(), "[batch, sequence, 1]");
  for (const auto& [name, tensor] : reduced.smallest.feeds.at(0)) EXPECT_EQ(tensor.size(), 1);
  EXPECT_TRUE(Verify(reduced.smallest.model).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Models, PlantedRule,
    testing::Values(Planted{"gemma3_B18", "bad-tanh", {"bad-norm", "bad-swish"}},
                    Planted{"gemma3_B18", "bad-norm", {"bad-tanh", "bad-swish"}},
                    Planted{"deepseek_v3_A18", "bad-norm", {"bad-tanh", "bad-swish"}},
                    Planted{"deepseek_v3_A18", "bad-swish", {"bad-tanh", "bad-norm"}},
                    Planted{"deepseek_v32_A18", "bad-swish", {"bad-tanh", "bad-norm"}}),
    [](const testing::TestParamInfo<Planted>& info) {
      std::string name = StrCat(info.param.model, "_", info.param.rule);
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(Bisect, FindsNothingWhereAllIsGood) {
  const Model model = Load("gemma3_B18");
  const PipelineOptions options{.page = false};
  const auto judge = Must(OutputJudge(model, options));
  const auto bisection = Must(Bisect(model, options, judge));
  EXPECT_FALSE(bisection.bad.has_value());
  EXPECT_THAT(BisectionText(bisection), HasSubstr(" rewrites; all: equal"));
}

// Any judge will do: the first rewrite that leaves a node of some type.
TEST(Bisect, AsksTheJudge) {
  const Model model = Load("gemma3_B18");
  const auto has_norm = [](const Model& after, int64_t) -> absl::StatusOr<std::string> {
    for (const auto& node : after.graph->nodes()) {
      if (node->Is("RMSNormalization")) return std::string("has a norm");
    }
    return std::string();
  };
  const auto bisection = Must(Bisect(model, {.page = false}, has_norm));
  ASSERT_TRUE(bisection.bad.has_value());
  EXPECT_EQ(bisection.bad->rule, "rms-norm");
  EXPECT_THAT(BisectionText(bisection), HasSubstr("all: has a norm; 1-"));
}

TEST(Bisect, RefusesAModelThatIsWrongBeforeAnyRewrite) {
  const auto wrong = [](const Model&, int64_t) -> absl::StatusOr<std::string> {
    return std::string("never good");
  };
  const auto bisection = Bisect(Load("gemma3_B18"), {.page = false}, wrong);
  EXPECT_EQ(std::string(StdView(bisection.status().message())),
            "the model is wrong before any rewrite: never good");
}

Model Parse(std::string_view text) { return Must(ParseModel(text)); }

// Keeps an op, whatever else goes.
ReduceCheck Has(std::string op) {
  return [op](const ReduceCase& attempt) -> std::optional<std::string> {
    for (const auto& node : attempt.model.graph->nodes()) {
      if (node->Is(op)) return StrCat("has \"", node->output(0)->name(), "\"");
    }
    return std::nullopt;
  };
}

TEST(Reduce, KeepsOmittedInputsOmittedAndSymbolsBound) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T, 4] x) => (float[T, 4] y, float[T, 4] z) <float max = {2}, float[4] w = {1, 2, 3, 4}> {
      a = Mul (x, w)
      b = Clip (a, , max)
      y = Neg (b)
      z = Relu (b)
    })");
  const auto reduced = Must(Reduce(model, Has("Clip")));
  const Graph& graph = *reduced.smallest.model.graph;
  ASSERT_EQ(graph.num_nodes(), 1);
  EXPECT_EQ(graph.nodes().front()->input(1), nullptr);
  EXPECT_NE(graph.nodes().front()->input(2), nullptr);
  EXPECT_EQ(graph.inputs()[0]->shape()->ToString(), "[T, 1]");
  EXPECT_EQ(reduced.after.constant_bytes, 0);
  ASSERT_EQ(reduced.smallest.feeds.size(), 1u);
  EXPECT_EQ(reduced.smallest.feeds[0].size(), graph.inputs().size());
}

// To one, or two, or half as often as that will do: here rows, tokens and columns.
TEST(Reduce, MakesDimsSmall) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[40, T] w, float[T, 24] x) => (float[40, 24] y) { y = MatMul (w, x) })");
  const ReduceCheck check = [](const ReduceCase& attempt) -> std::optional<std::string> {
    const Graph& graph = *attempt.model.graph;
    if (graph.num_nodes() < 1 || attempt.feeds.empty()) return std::nullopt;
    const auto feed = attempt.feeds[0].find(graph.inputs()[0]->name());
    const Shape& out = *graph.outputs()[0]->shape();
    const bool fails =
        feed != attempt.feeds[0].end() && feed->second.dims()[1] >= 2 && *out[0].constant() >= 10;
    return fails ? std::optional<std::string>("large") : std::nullopt;
  };
  const auto reduced = Must(Reduce(model, check));
  const Graph& graph = *reduced.smallest.model.graph;
  EXPECT_EQ(graph.inputs()[0]->shape()->ToString(), "[10, T]");
  EXPECT_EQ(graph.inputs()[1]->shape()->ToString(), "[T, 1]");
  EXPECT_EQ(graph.outputs()[0]->shape()->ToString(), "[10, 1]");
  EXPECT_EQ(reduced.smallest.feeds.at(0).at(graph.inputs()[0]->name()).dims(),
            (std::vector<int64_t>{10, 2}));
}

TEST(Reduce, StaysWithTheReason) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { a = Neg (x) b = Abs (a) y = Relu (b) })");
  // With all nodes it fails by one reason, with fewer by another.
  const ReduceCheck check = [](const ReduceCase& attempt) -> std::optional<std::string> {
    return attempt.model.graph->num_nodes() == 3 ? "three" : "fewer";
  };
  auto reduced = Reduce(model, check);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ(reduced->after.nodes, 3);
  reduced = Reduce(model, check, {.any_reason = true});
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ(reduced->after.nodes, 1);
}

TEST(Reduce, CallsWhatPassesTheCheckWrong) {
  const Model model =
      Parse("<ir_version: 10, opset_import: [\"\" : 24]> g (float x) => (float y) { y = Neg (x) }");
  EXPECT_EQ(std::string(StdView(Reduce(model, Has("Clip")).status().message())),
            "the whole model passes the check");
}

}  // namespace
}  // namespace pagefuse
