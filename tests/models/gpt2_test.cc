// GPT-2 and BERT as exporters of opsets 9 to 12 and ONNX Runtime's tools write them
// (tests/data/gpt2/README.md): the numbers and tokens of ONNX Runtime.
#include <algorithm>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paths.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx_io.h"
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

int64_t CountOps(const Model& model, std::string_view op) {
  const auto& nodes = model.graph->nodes();
  return std::count_if(nodes.begin(), nodes.end(),
                       [op](const auto& node) { return node->Is(op, "pagefuse"); });
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
    EXPECT_EQ(CountOps((*engine)->session().model(), "PagedAttention"), 2);
    EXPECT_EQ(CountOps((*engine)->session().model(), "PagedCacheInsert"), 2);
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
