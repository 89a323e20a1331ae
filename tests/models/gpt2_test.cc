// SPDX-License-Identifier: Apache-2.0
// GPT-2 and BERT as exporters of opsets 9 to 12 and ONNX Runtime's tools write them
// (tests/data/gpt2/README.md): the numbers and tokens of ONNX Runtime.
#include <algorithm>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paths.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using Tokens = std::vector<std::vector<int64_t>>;

const nlohmann::json& Expected() {
  static const nlohmann::json& expected = *new nlohmann::json(
      nlohmann::json::parse(std::ifstream(SourcePath("tests/data/gpt2/expect.json"))));
  return expected;
}

std::vector<Request> Prompts() {
  std::vector<Request> requests;
  for (const auto& prompt : Expected()["prompts"]) {
    requests.push_back({.prompt = prompt.get<std::vector<int64_t>>(), .max_new_tokens = 10});
  }
  return requests;
}

Tokens TokensOf(const std::vector<Completion>& completions) {
  Tokens tokens;
  for (const Completion& completion : completions) tokens.push_back(completion.tokens);
  return tokens;
}

class Gpt2 : public testing::TestWithParam<std::string> {
 protected:
  static std::string Path() { return Gpt2Path(GetParam() + ".onnx"); }
};

// Prompts of 1 to 19 tokens in one batch, the longer ones in chunks.
TEST_P(Gpt2, IsPagedAndGivesTheTokensOfOnnxRuntime) {
  for (const int64_t step : {512, 8}) {
    EngineOptions options;
    options.max_tokens_per_step = step;
    options.block_size = 4;
    const auto engine = Engine::Load(Path(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_EQ(CountFused((*engine)->session().model(), "PagedAttention"), 2);
    EXPECT_EQ(CountFused((*engine)->session().model(), "PagedCacheInsert"), 2);
    const auto completions = (*engine)->Generate(Prompts());
    ASSERT_TRUE(completions.ok()) << completions.status();
    EXPECT_EQ(TokensOf(*completions), Expected()["tokens"].get<Tokens>());
  }
}

TEST_P(Gpt2, GivesThemAsItWasExportedToo) {
  auto model = LoadModel(Path());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto decoder = PlainDecoder::Create(*std::move(model), {});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const auto completions = (*decoder)->Generate(Prompts());
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ(TokensOf(*completions), Expected()["tokens"].get<Tokens>());
}

INSTANTIATE_TEST_SUITE_P(Exports, Gpt2,
                         testing::ValuesIn(Expected()["models"].get<std::vector<std::string>>()),
                         [](const auto& info) { return info.param; });

// As ONNX Runtime's tools write models whose projections they keep apart.
enum class HeadsOf { kRows, kKeysByHead, kOneTensor };

// The op's projection, and MultiHeadAttention over its parts.
void SplitAttention(Model& model, Node* node, HeadsOf form) {
  Graph& graph = *model.graph;
  GraphBuilder build(graph, node, "split");
  const int64_t heads = *node->IntAttribute("num_heads", 0);
  Value* product = build.Add("MatMul", {node->input(0), node->input(1)});
  std::vector<Value*> inputs(8, nullptr);
  if (form == HeadsOf::kOneTensor) {
    // [3, H, D] to [H, 3, D].
    Value* parts = build.Add("Reshape", {product, build.Ints({0, 0, 3, heads, -1})});
    inputs[0] = build.Add("Transpose", {parts}, {{"perm", std::vector<int64_t>{0, 1, 3, 2, 4}}});
  } else {
    const int64_t width = *(*node->input(1)->shape())[1].constant() / 3;
    Node* split = build.AddNode("", "Split", {product, build.Ints({width, width, width})}, 3);
    split->SetAttribute("axis", MakeAttribute(int64_t{2}));
    for (int i = 0; i < 3; ++i) inputs[i] = split->output(i);
  }
  for (int i : {1, 2}) {
    if (form != HeadsOf::kKeysByHead) break;
    Value* parts = build.Add("Reshape", {inputs[i], build.Ints({0, 0, heads, -1})});
    inputs[i] = build.Add("Transpose", {parts}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  inputs[3] = node->input(2);
  inputs[4] = node->num_inputs() > 3 ? node->input(3) : nullptr;
  Value* past = node->num_inputs() > 4 ? node->input(4) : nullptr;
  for (int i : {0, 1}) {
    if (past) inputs[6 + i] = build.Add("Gather", {past, build.Int(i)}, {{"axis", 0}});
  }
  const bool caches = node->num_outputs() > 1 && node->output(1);
  Node* attend = build.AddNode("com.microsoft", "MultiHeadAttention", inputs, caches ? 3 : 1);
  for (const auto& [name, attribute] : node->attributes()) {
    if (name != "qkv_hidden_sizes") attend->SetAttribute(name, attribute);
  }
  graph.ReplaceAllUses(node->output(0), attend->output(0));
  if (caches) {
    Node* present = build.AddNode("", "Concat",
                                  {build.Add("Unsqueeze", {attend->output(1), build.Ints({0})}),
                                   build.Add("Unsqueeze", {attend->output(2), build.Ints({0})})},
                                  1);
    present->SetAttribute("axis", MakeAttribute(int64_t{0}));
    graph.ReplaceAllUses(node->output(1), present->output(0));
  }
  graph.EraseNode(node);
}

class Gpt2OfHeads : public testing::TestWithParam<std::tuple<std::string, HeadsOf>> {};

TEST_P(Gpt2OfHeads, IsPagedAndGivesTheTokensOfOnnxRuntime) {
  auto model = LoadModel(Gpt2Path(std::get<0>(GetParam()) + ".onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(InferShapes(*model).ok());
  std::vector<Node*> nodes;
  for (const auto& node : model->graph->nodes()) {
    if (node->Is("Attention", "com.microsoft")) nodes.push_back(node.get());
  }
  ASSERT_EQ(nodes.size(), 2);
  for (Node* node : nodes) SplitAttention(*model, node, std::get<1>(GetParam()));
  const auto engine = Engine::Create(*std::move(model), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(CountFused((*engine)->session().model(), "PagedAttention"), 2);
  const auto completions = (*engine)->Generate(Prompts());
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ(TokensOf(*completions), Expected()["tokens"].get<Tokens>());
}

INSTANTIATE_TEST_SUITE_P(
    Forms, Gpt2OfHeads,
    testing::Combine(testing::Values("fused_plain", "fused_past", "fused_past_mask", "fused_mask",
                                     "fused_lengths"),
                     testing::Values(HeadsOf::kRows, HeadsOf::kKeysByHead, HeadsOf::kOneTensor)));

TEST(Bert, GivesTheNumbersOfOnnxRuntime) {
  const std::string folder = Gpt2Path("bert");
  std::map<std::string, Tensor> feeds;
  for (int i = 0; i < 3; ++i) {
    std::string name;
    auto tensor = LoadTensor(folder + "/test_data_set_0/input_" + std::to_string(i) + ".pb", &name);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    feeds[name] = *std::move(tensor);
  }
  std::string name;
  const auto want = LoadTensor(folder + "/test_data_set_0/output_0.pb", &name);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const bool optimise : {false, true}) {
    SessionOptions options;
    options.optimise = optimise;
    const auto session = Session::Load(folder + "/model.onnx", options);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto outputs = (*session)->Run(feeds);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_LE(MaxDifference((*outputs)[0].values<float>(), want->values<float>()), 1e-5);
  }
}

TEST(Bert, IsNotPagedAndSaysWhy) {
  const auto engine = Engine::Load(Gpt2Path("bert/model.onnx"), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), testing::HasSubstr("is not causal"));
}

}  // namespace
}  // namespace pagefuse
