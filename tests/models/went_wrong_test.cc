// SPDX-License-Identifier: Apache-2.0
// Decoders that were paged without proof, or not for no reason (tests/data/went_wrong/README.md):
// the tokens of a full forward pass by another runtime, or the node that keeps them from paging.
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paths.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

const nlohmann::json& Expected() {
  static const nlohmann::json& expected = *new nlohmann::json(
      nlohmann::json::parse(std::ifstream(SourcePath("tests/data/went_wrong/expect.json"))));
  return expected;
}

absl::StatusOr<std::unique_ptr<Engine>> Load(const std::string& name, EngineOptions options = {}) {
  return Engine::Load(WentWrongPath(name + ".onnx"), options);
}

// The prompt's first `length` tokens.
Request Prompt(int64_t length) {
  auto prompt = Expected()["prompt"].get<std::vector<int64_t>>();
  prompt.resize(length);
  return {.prompt = std::move(prompt), .max_new_tokens = 10};
}

class PagedAfterAll : public testing::TestWithParam<std::string> {};

TEST_P(PagedAfterAll, GivesTheTokensOfAFullForwardPass) {
  const auto engine = Load(GetParam());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto completions = (*engine)->Generate({Prompt(40)});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*completions)[0].tokens, Expected()["tokens"][GetParam()].get<std::vector<int64_t>>());
}

TEST_P(PagedAfterAll, GivesEachPromptOfABatchWhatItGetsAlone) {
  EngineOptions options;
  options.max_tokens_per_step = 24;  // the longer prompts come in chunks
  const auto engine = Load(GetParam(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<Request> requests = {Prompt(17), Prompt(40), Prompt(1), Prompt(33)};
  const auto together = (*engine)->Generate(requests);
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_EQ((*together)[1].tokens, Expected()["tokens"][GetParam()].get<std::vector<int64_t>>());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = (*engine)->Generate({requests[i]});
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ((*together)[i].tokens, (*alone)[0].tokens) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, PagedAfterAll,
                         testing::Values("A_nopos1", "A_tt", "A18_lastl", "A18_gather", "A_b1",
                                         "A_mixed"),
                         [](const auto& info) { return info.param; });

TEST(NotPaged, AConvolutionOverTokensIsNamed) {
  const auto engine = Load("A_conv");
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("node \"c_c\" (Conv) is not known to work on each token alone"));
}

TEST(NotPaged, AnAttentionThatWasNotRecognisedIsNamed) {
  // Another function of the logarithm than its power.
  auto model = LoadModel(WentWrongPath("A_mixed.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  Graph& graph = *model->graph;
  for (Node* node : NodesOf(graph)) {
    const Node* before = node->Is("Exp") ? node->input(0)->producer() : nullptr;
    if (!before || !before->Is("LogSoftmax")) continue;
    Value* other = graph.AddValue(graph.UniqueName("other"));
    graph.AddNode("", "Softplus", node->inputs(), {other}, node);
    graph.ReplaceAllUses(node->output(0), other);
    graph.EraseNode(node);
  }
  const auto engine = Engine::Create(*std::move(model), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("node \"node_MatMul_930\" (MatMul) does not work on each token alone"));
}

}  // namespace
}  // namespace pagefuse
