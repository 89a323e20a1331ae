// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and V3 in the forms of PyTorch's TorchScript exporter (tests/data/deepseek/README.md):
// each is paged over latent rows and gives the tokens that PyTorch gives.
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paths.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {
namespace {

const nlohmann::json& Expected() {
  static const nlohmann::json& expected = *new nlohmann::json(
      nlohmann::json::parse(std::ifstream(SourcePath("tests/data/deepseek/expect.json"))));
  return expected;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, _] : Expected().items()) names.push_back(name);
  return names;
}

// The prompt of the reference, and its first tokens as prompts of other lengths.
std::vector<Request> Prompts(const nlohmann::json& expected) {
  const auto prompt = expected["prompt"].get<std::vector<int64_t>>();
  const auto count = static_cast<int64_t>(expected["greedy"].size());
  std::vector<Request> requests;
  for (const size_t length : {prompt.size(), size_t{1}, size_t{5}}) {
    requests.push_back({.prompt = {prompt.begin(), prompt.begin() + static_cast<int64_t>(length)},
                        .max_new_tokens = count});
  }
  return requests;
}

class DeepseekVariant : public testing::TestWithParam<std::string> {
 protected:
  static std::string Path() { return DeepseekPath(GetParam() + ".onnx"); }
};

TEST_P(DeepseekVariant, IsPagedAndGivesTheTokensOfPytorch) {
  const nlohmann::json& expected = Expected()[GetParam()];
  const std::vector<Request> requests = Prompts(expected);
  const auto plain = PlainDecoder::Create(*LoadModel(Path()), {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto alone = (*plain)->Generate(requests);
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (const int64_t step : {512, 7}) {
    EngineOptions options;
    options.max_tokens_per_step = step;
    options.block_size = 4;
    const auto engine = Engine::Load(Path(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const Model& model = (*engine)->session().model();
    EXPECT_EQ(CountFused(model, "MlaCacheInsert"), 2);
    EXPECT_EQ(CountFused(model, "SparseMlaAttention"), 2);
    EXPECT_EQ(CountFused(model, "GroupedMatMul"), 2);
    const auto completions = (*engine)->Generate(requests);
    ASSERT_TRUE(completions.ok()) << completions.status();
    EXPECT_EQ((*completions)[0].tokens, expected["greedy"].get<std::vector<int64_t>>());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ((*completions)[i].tokens, (*alone)[i].tokens) << "prompt " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Exports, DeepseekVariant, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pagefuse
