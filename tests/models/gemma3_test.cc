// SPDX-License-Identifier: Apache-2.0
// Gemma 3 exports from end to end: the plain graph, the fused graph, and tokens, against the
// reference.
#include <set>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/cache_choice.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

constexpr double kTolerance = 1e-4;  // of logits of size 3 to 9, float32
constexpr int kLayers = 6;

class Gemma3 : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<PagedModel> Paged(bool all_logits = true) {
    PagedModelOptions options;
    options.all_logits = all_logits;
    auto paged = PagedModel::Create(LoadBundled(GetParam()), options);
    EXPECT_TRUE(paged.ok()) << paged.status();
    return paged.ok() ? *std::move(paged) : nullptr;
  }
};
INSTANTIATE_TEST_SUITE_P(Exports, Gemma3, testing::Values("gemma3_A18", "gemma3_A23", "gemma3_B18"),
                         [](const auto& info) { return info.param; });

std::vector<int64_t> Ints(const Tensor& tensor) { return *IntegerValues(tensor); }

// The tokens of row `b` that the mask keeps.
std::vector<int64_t> ValidTokens(const DataSet& data, int64_t b) {
  const Tensor& ids = data.inputs.at("input_ids");
  const Tensor& mask = data.inputs.at("attention_mask");
  const int64_t length = ids.dims()[1];
  const int64_t past = mask.dims()[1] - length;
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    if (Ints(mask)[b * mask.dims()[1] + past + i]) tokens.push_back(Ints(ids)[b * length + i]);
  }
  return tokens;
}

// Expected logits of the last `count` tokens of row `b`: padding is on the left.
std::span<const float> ExpectedLogits(const DataSet& data, int64_t b, int64_t count) {
  const Tensor& logits = data.outputs.at("logits");
  const int64_t length = logits.dims()[1], vocabulary = logits.dims()[2];
  return logits.values<float>().subspan((b * length + length - count) * vocabulary,
                                        count * vocabulary);
}

TEST_P(Gemma3, TheUnfusedGraphReproducesEveryDataSet) {
  SessionOptions options;
  options.optimise = false;
  auto session = Session::Create(LoadBundled(GetParam()), options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_GT(CountDataSets(GetParam()), 0);
  for (int i = 0; i < CountDataSets(GetParam()); ++i) {
    const DataSet data = LoadDataSet(GetParam(), i);
    auto outputs = (*session)->Run(data.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto& values = (*session)->model().graph->outputs();
    for (size_t o = 0; o < values.size(); ++o) {
      const Tensor& expected = data.outputs.at(values[o]->name());
      EXPECT_EQ((*outputs)[o].dims(), expected.dims());
      EXPECT_LE(MaxDifference((*outputs)[o].values<float>(), expected.values<float>()), kTolerance)
          << "data set " << i << ", output " << values[o]->name();
    }
  }
}

TEST_P(Gemma3, EveryLayerBecomesOneInsertAndOneAttention) {
  auto paged = Paged();
  ASSERT_NE(paged, nullptr);
  std::map<std::string, int> fused;
  std::set<std::string> others;
  for (const auto& node : paged->session().model().graph->nodes()) {
    if (node->domain() == "pagefuse") {
      ++fused[node->op_type()];
    } else {
      others.insert(node->op_type());
    }
  }
  EXPECT_EQ(fused["RopeCacheInsert"], kLayers);
  EXPECT_EQ(fused["PagedAttention"], kLayers);
  EXPECT_EQ(fused["PagedCacheInsert"], 0);
  // No mask, no rotation, no cache Concat, no attention arithmetic is left.
  for (const char* op : {"Softmax", "Where", "And", "LessOrEqual", "Greater", "GatherND", "Range",
                         "RotaryEmbedding", "Attention", "Neg", "IsNaN", "Expand", "ScatterND"}) {
    EXPECT_FALSE(others.contains(op)) << op << " is left";
  }
}

TEST_P(Gemma3, PrefillGivesTheLogitsOfEveryPosition) {
  auto paged = Paged();
  ASSERT_NE(paged, nullptr);
  const DataSet data = LoadDataSet(GetParam(), 0);
  const std::vector<int64_t> tokens = ValidTokens(data, 0);
  ASSERT_TRUE(paged->Reserve({40}, 40).ok());
  auto logits = paged->Step({{paged->cache().AddSequence(), tokens}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(MaxDifference(logits->values<float>(), ExpectedLogits(data, 0, 40)), kTolerance);
}

TEST_P(Gemma3, ChunksGiveTheLogitsOfOnePrefill) {
  auto paged = Paged();
  ASSERT_NE(paged, nullptr);
  const DataSet data = LoadDataSet(GetParam(), 0);
  const std::vector<int64_t> tokens = ValidTokens(data, 0);
  ASSERT_TRUE(paged->Reserve({40}, 40).ok());
  const SequenceId sequence = paged->cache().AddSequence();
  const std::span<const float> expected = ExpectedLogits(data, 0, 40);
  size_t done = 0;
  for (size_t chunk : {17, 1, 9, 13}) {
    auto logits = paged->Step({{sequence, {tokens.begin() + done, tokens.begin() + done + chunk}}});
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_LE(MaxDifference(logits->values<float>(), expected.subspan(done * 256, chunk * 256)),
              kTolerance);
    done += chunk;
  }
  EXPECT_EQ(done, tokens.size());
}

TEST_P(Gemma3, SequencesOfDifferentLengthShareAStep) {
  auto paged = Paged();
  ASSERT_NE(paged, nullptr);
  const DataSet data =
      LoadDataSet(GetParam(), 1);  // two rows, the second with 11 padding tokens on the left
  const std::vector<int64_t> first = ValidTokens(data, 0), second = ValidTokens(data, 1);
  ASSERT_EQ(first.size(), 40u);
  ASSERT_EQ(second.size(), 29u);
  ASSERT_TRUE(paged->Reserve({40, 29}, 80).ok());
  const SequenceId a = paged->cache().AddSequence(), b = paged->cache().AddSequence();
  auto logits = paged->Step({{a, first}, {b, second}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(MaxDifference(logits->values<float>().first(40 * 256), ExpectedLogits(data, 0, 40)),
            kTolerance);
  EXPECT_LE(MaxDifference(logits->values<float>().subspan(40 * 256), ExpectedLogits(data, 1, 29)),
            kTolerance);
  paged->cache().Remove(a);
  paged->cache().Remove(b);
  EXPECT_EQ(paged->cache().pool().num_held(), 0);
}

TEST_P(Gemma3, GreedyTokensEqualTheReference) {
  const Greedy greedy = LoadGreedy(GetParam());
  auto engine = Engine::Create(LoadBundled(GetParam()), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  Request request{.prompt = greedy.prompt, .max_new_tokens = 32};
  auto completions = (*engine)->Generate({request});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*completions)[0].tokens, greedy.tokens);
  EXPECT_EQ((*engine)->cache().pool().num_held(), 0);
}

TEST(Gemma3WithPast, DecodeStepsGiveTheLogitsOfTheReference) {
  PagedModelOptions options;
  options.all_logits = true;
  auto paged = PagedModel::Create(LoadBundled("gemma3_B18"), options);
  ASSERT_TRUE(paged.ok()) << paged.status();
  ASSERT_TRUE((*paged)->Reserve({64}, 64).ok());
  const SequenceId sequence = (*paged)->cache().AddSequence();
  // Set 0 is the prefill of 40 tokens; 2, 3 and 4 are decode steps, each on the presents of the
  // step before.
  for (int set : {0, 2, 3, 4}) {
    const DataSet data = LoadDataSet("gemma3_B18", set);
    const std::vector<int64_t> tokens = Ints(data.inputs.at("input_ids"));
    auto logits = (*paged)->Step({{sequence, tokens}});
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_LE(MaxDifference(logits->values<float>(),
                            ExpectedLogits(data, 0, static_cast<int64_t>(tokens.size()))),
              kTolerance)
        << "data set " << set;
  }
}

TEST(Gemma3WithPast, AChunkOnAPaddedPastGivesTheLogitsOfTheReference) {
  PagedModelOptions options;
  options.all_logits = true;
  auto paged = PagedModel::Create(LoadBundled("gemma3_B18"), options);
  ASSERT_TRUE(paged.ok()) << paged.status();
  ASSERT_TRUE((*paged)->Reserve({64, 64}, 128).ok());
  const DataSet prefill = LoadDataSet("gemma3_B18", 1), chunk = LoadDataSet("gemma3_B18", 5);
  const SequenceId a = (*paged)->cache().AddSequence(), b = (*paged)->cache().AddSequence();
  ASSERT_TRUE((*paged)->Step({{a, ValidTokens(prefill, 0)}, {b, ValidTokens(prefill, 1)}}).ok());
  auto logits = (*paged)->Step({{a, ValidTokens(chunk, 0)}, {b, ValidTokens(chunk, 1)}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(MaxDifference(logits->values<float>().first(5 * 256), ExpectedLogits(chunk, 0, 5)),
            kTolerance);
  EXPECT_LE(MaxDifference(logits->values<float>().subspan(5 * 256), ExpectedLogits(chunk, 1, 5)),
            kTolerance);
}

// Teacher-forced along the reference tokens: a token must agree wherever the reference won by more
// than twice the error, since either of the two best logits may move by it.
class QuantisedCache : public testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Modes, QuantisedCache,
                         testing::Combine(testing::Values("gemma3_A18", "gemma3_A23", "gemma3_B18"),
                                          testing::Values("bf16", "fp8_per_tensor",
                                                          "fp8_per_token_head",
                                                          "int8_per_token_head")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

TEST_P(QuantisedCache, ClearTokensAgreeWithTheReference) {
  const auto [model, mode] = GetParam();
  const Greedy greedy = LoadGreedy(model);
  auto run = [&, model = model](const std::string& kv_cache) {
    EngineOptions options;
    options.kv_cache = kv_cache;
    auto engine = Engine::Create(LoadBundled(model), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    Request request{.prompt = greedy.prompt, .max_new_tokens = 32};
    request.forced = greedy.tokens;
    request.keep_logits = true;
    return (*engine)->Generate({request}).value()[0];
  };
  const Completion exact = run("none"), quantised = run(mode);
  double error = 0;
  for (size_t t = 0; t < exact.logits.size(); ++t) {
    error = std::max(error, MaxDifference(exact.logits[t], quantised.logits[t]));
  }
  std::cout << model << " " << mode << ": logits differ by " << error << " at most\n";
  RecordProperty("max_logit_error", std::to_string(error));
  EXPECT_GT(error, 0) << "a quantised cache cannot be exact: was it used?";
  EXPECT_LT(error, 1.0);
  int clear = 0;
  for (size_t t = 0; t < greedy.tokens.size(); ++t) {
    if (greedy.gap[t] <= 2 * error) continue;
    ++clear;
    EXPECT_EQ(quantised.tokens[t], greedy.tokens[t]) << "token " << t << ", gap " << greedy.gap[t];
  }
  EXPECT_GT(clear, 0) << "no token is clear enough to compare";
}

// A model that was trained to answer: what 4 bits do to it does not change the answer, as it would
// the tokens of random weights.
class CacheOfTheAnswer : public testing::TestWithParam<CacheChoice> {};

std::vector<CacheChoice> ChoicesOfHeads() {
  std::vector<CacheChoice> choices;
  for (const CacheChoice& choice : CacheChoices()) {
    if (!choice.grouped()) choices.push_back(choice);
  }
  return choices;
}

INSTANTIATE_TEST_SUITE_P(Formats, CacheOfTheAnswer, testing::ValuesIn(ChoicesOfHeads()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CacheOfTheAnswer, HoldsTheFact) {
  EngineOptions options;
  options.kv_cache = std::string(GetParam().name);
  const auto engine = Engine::Create(LoadBundled("gemma3_recall", "model_with_past.onnx"), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->cache_settings().format, GetParam().name);
  const auto text = ReadFile(ModelDir("gemma3_recall") + "/demo.txt");
  ASSERT_TRUE(text.ok()) << text.status();
  Request request{.prompt = {2}, .max_new_tokens = 16, .stop_tokens = {'\n'}};
  for (const unsigned char byte : *text) request.prompt.push_back(byte);
  const auto completions = (*engine)->Generate({request});
  ASSERT_TRUE(completions.ok()) << completions.status();
  const std::vector<int64_t>& tokens = (*completions)[0].tokens;
  EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "86 nails.\n");
}

}  // namespace
}  // namespace pagefuse
