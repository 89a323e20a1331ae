// SPDX-License-Identifier: Apache-2.0
// What two graphs do differently, and nothing else, is told.
#include "pagefuse/passes/debug/model_diff.h"

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Model Parse(std::string_view text) { return Must(ParseModel(text)); }

constexpr std::string_view kBefore = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (float[T, 4] x, float[T, 4] z) => (float[T, 4] y) <float[4] w = {1, 2, 3, 4}, float[4] v = {5, 6, 7, 8}> {
    a = Mul (x, w)
    b = Relu (a)
    c = Add (b, z)
    d = Sigmoid (c)
    e = Mul (d, v)
    y = Neg (e)
  })";

// One replacement in the text of the graph.
ModelDiff Mutated(const std::string& from, const std::string& to) {
  std::string text(kBefore);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return DiffModels(Parse(kBefore), Parse(text));
}

TEST(ModelDiff, SeesNoDifferenceInNamesAndOrder) {
  const Model renamed = Parse(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    other (float[N, 4] x, float[N, 4] z) => (float[N, 4] y) <float[4] k = {5, 6, 7, 8}, float[4] m = {1, 2, 3, 4}> {
      one = Mul (x, m)
      ["the second"] two = Relu (one)
      three = Add (two, z)
      four = Sigmoid (three)
      five = Mul (four, k)
      y = Neg (five)
    })");
  EXPECT_EQ(ModelDiffText(DiffModels(Parse(kBefore), renamed)), "same\n");
}

// Every value of an export renamed, and its nodes in another order.
TEST(ModelDiff, SeesNoDifferenceInARenamedExport) {
  auto before = Must(LoadModel(SourcePath("models/gemma3_B18/model.onnx")));
  Model after = before.Clone();
  Graph& graph = *after.graph;
  int next = 0;
  for (Value* value : graph.values()) graph.Rename(value, StrCat("renamed", next++));
  // Each node as early as what it reads allows, the last ones first.
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  std::map<const Node*, int> depth;
  for (Node* node : nodes) {
    for (const Value* read : ValuesRead(*node)) {
      if (read->producer() == nullptr) continue;
      depth[node] = std::max(depth[node], depth[read->producer()] + 1);
    }
  }
  std::reverse(nodes.begin(), nodes.end());
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&depth](const Node* a, const Node* b) { return depth[a] < depth[b]; });
  for (Node* node : nodes) graph.MoveBefore(node, nullptr);
  EXPECT_EQ(ModelDiffText(DiffModels(before, after)), "same\n");
}

TEST(ModelDiff, ShowsTheNodeThatChanged) {
  struct Mutation {
    const char *from, *to;
    std::vector<std::string> removed, added;
  };
  const std::vector<Mutation> mutations = {
      {"b = Relu (a)", "b = Softplus (a)", {"b = Relu (a)"}, {"b = Softplus (a)"}},
      {"c = Add (b, z)", "c = Sub (b, z)", {"c = Add (b, z)"}, {"c = Sub (b, z)"}},
      {"c = Add (b, z)", "c = Add (b, x)", {"c = Add (b, z)"}, {"c = Add (b, x)"}},
      {"d = Sigmoid (c)",
       "s = Sqrt (c) d = Sigmoid (s)",
       {"d = Sigmoid (c)"},
       {"s = Sqrt (c)", "d = Sigmoid (s)"}},
      {"y = Neg (e)", "y = Abs (e)", {"y = Neg (e)"}, {"y = Abs (e)"}},
      {"a = Mul (x, w)", "a = Mul (x, w) k = Exp (a)", {}, {"k = Exp (a)"}},
      {"d = Sigmoid (c)",
       "d = HardSigmoid <alpha = 0.5> (c)",
       {"d = Sigmoid (c)"},
       {"d = HardSigmoid <alpha = 0.5> (c)"}}};
  for (const Mutation& mutation : mutations) {
    const ModelDiff diff = Mutated(mutation.from, mutation.to);
    ASSERT_EQ(diff.hunks.size(), 1u) << mutation.to << "\n" << ModelDiffText(diff);
    EXPECT_EQ(diff.hunks[0].removed, mutation.removed) << mutation.to;
    EXPECT_EQ(diff.hunks[0].added, mutation.added) << mutation.to;
    EXPECT_THAT(diff.constants, IsEmpty());
  }
}

TEST(ModelDiff, ShowsAttributes) {
  const Model before = Parse(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (float[T, 4] x) => (float[T, 4] y) { a = "
      "Softmax <axis = -1> (x) y = Neg (a) }");
  const Model after = Parse(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (float[T, 4] x) => (float[T, 4] y) { b = "
      "Softmax <axis = 0> (x) y = Neg (b) }");
  EXPECT_EQ(ModelDiffText(DiffModels(before, after)),
            "@ from \"x\":\n-   a = Softmax <axis = -1> (x)\n+   b = Softmax <axis = 0> (x)\n");
}

TEST(ModelDiff, ShowsConstantsByHowFarTheyAreApart) {
  const ModelDiff diff = Mutated("{5, 6, 7, 8}", "{5, 6, 7.5, 8}");
  EXPECT_THAT(diff.hunks, IsEmpty());
  EXPECT_EQ(ModelDiffText(diff), "constants: \"v\" differs (largest 5.0e-01), 1 the same\n");
}

TEST(ModelDiff, ShowsInputsAndOutputs) {
  const ModelDiff diff = Mutated("float[T, 4] z) =>", "float[T, 4] z, int64 more) =>");
  EXPECT_THAT(diff.inputs, ElementsAre("+ int64[] \"more\""));
  EXPECT_THAT(ModelDiffText(diff), HasSubstr("inputs: + int64[] \"more\"\n"));
}

TEST(ModelDiff, TellsWhatPassesDid) {
  const auto path = SourcePath("models/gemma3_B18/model.onnx");
  auto before = Must(LoadModel(path));
  auto after = Must(LoadModel(path));
  ASSERT_TRUE(RunPipeline(before, {.page = false}).ok());
  ASSERT_TRUE(RunPipeline(after, {.disabled = {"gated-mlp"}, .page = false}).ok());
  const std::string text = ModelDiffText(DiffModels(before, after));
  EXPECT_THAT(text, HasSubstr("pagefuse.GatedLinear 6 -> 0"));
  EXPECT_EQ(DiffModels(before, after).hunks.size(), 6u) << text;
}

}  // namespace
}  // namespace pagefuse
