// SPDX-License-Identifier: Apache-2.0
// Formats of the paged cache from end to end: TurboQuant's slots, formats by kind of layer, layers
// that are skipped, and scales that are measured.
#include <cmath>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/runtime/cache_ranges.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

std::map<std::string, int> FusedOps(const Session& session) {
  std::map<std::string, int> counts;
  for (const auto& node : session.model().graph->nodes()) {
    if (node->domain() == "pagefuse") ++counts[node->op_type()];
  }
  return counts;
}

EngineOptions Options(const std::string& format, const std::string& skip_layers = "") {
  EngineOptions options;
  options.kv_cache = format;
  if (!skip_layers.empty()) {
    options.session.pipeline.options["kv_cache_skip_layers"] = skip_layers;
  }
  return options;
}

std::unique_ptr<Engine> Recall(const EngineOptions& options) {
  auto engine = Engine::Create(LoadBundled("gemma3_recall", "model_with_past.onnx"), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

Request Question() {
  Request request{.prompt = {2}, .max_new_tokens = 16, .stop_tokens = {'\n'}};
  const auto text = ReadFile(ModelDir("gemma3_recall") + "/demo.txt");
  EXPECT_TRUE(text.ok()) << text.status();
  for (const unsigned char byte : *text) request.prompt.push_back(byte);
  return request;
}

std::string Answer(Engine& engine) {
  const auto completions = engine.Generate({Question()});
  EXPECT_TRUE(completions.ok()) << completions.status();
  if (!completions.ok()) return "";
  const std::vector<int64_t>& tokens = (*completions)[0].tokens;
  return std::string(tokens.begin(), tokens.end());
}

constexpr char kAnswer[] = "86 nails.\n";

// With every form of past, positions and masks that exports of the family have.
class TurboQuantSlots : public testing::TestWithParam<std::tuple<const char*, TurboQuantPreset>> {};
INSTANTIATE_TEST_SUITE_P(Presets, TurboQuantSlots,
                         testing::Combine(testing::Values("gemma3_A18", "gemma3_A23", "gemma3_B18",
                                                          "gemma3_D_fp32", "gemma3_D_windowed"),
                                          testing::ValuesIn(kTurboQuantPresets)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(std::get<1>(info.param).name);
                         });

TEST_P(TurboQuantSlots, HoldEveryLayer) {
  const auto& [model, preset] = GetParam();
  const auto engine = Engine::Create(LoadBundled(model), Options(std::string(preset.name)));
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::map<std::string, int> fused = FusedOps((*engine)->session());
  EXPECT_EQ(fused["TurboQuantInsert"], 6);
  EXPECT_EQ(fused["TurboQuantAttention"], 6);
  EXPECT_EQ(fused["PagedAttention"], 0);
  EXPECT_EQ(fused["PagedCacheInsert"] + fused["RopeCacheInsert"], 0);
  EXPECT_EQ((*engine)->cache_settings().format, preset.name);
}

// Logits of random weights move by what the format loses; tokens that win clearly stay.
TEST_P(TurboQuantSlots, KeepClearTokens) {
  const auto& [model, preset] = GetParam();
  const Greedy greedy = LoadGreedy(model);
  const auto run = [&, model = model](const std::string& format) {
    auto engine = Engine::Create(LoadBundled(model), Options(format));
    EXPECT_TRUE(engine.ok()) << engine.status();
    Request request{.prompt = greedy.prompt, .max_new_tokens = 32};
    request.forced = greedy.tokens;
    request.keep_logits = true;
    return (*engine)->Generate({request}).value()[0];
  };
  const Completion exact = run("none"), quantised = run(std::string(preset.name));
  double error = 0;
  for (size_t t = 0; t < exact.logits.size(); ++t) {
    error = std::max(error, MaxDifference(exact.logits[t], quantised.logits[t]));
  }
  RecordProperty("max_logit_error", std::to_string(error));
  EXPECT_GT(error, 0) << "slots cannot be exact: were they used?";
  for (size_t t = 0; t < greedy.tokens.size(); ++t) {
    if (greedy.gap[t] <= 2 * error) continue;
    EXPECT_EQ(quantised.tokens[t], greedy.tokens[t]) << "token " << t << ", gap " << greedy.gap[t];
  }
}

// In chunks that end inside blocks and windows.
TEST(TurboQuantSlotsOfTheAnswer, HoldItInChunks) {
  EngineOptions options = Options("turboquant_4bit_nc");
  options.max_tokens_per_step = 37;
  const auto engine = Recall(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(Answer(*engine), kAnswer);
}

TEST(TurboQuantSlotsOfTheAnswer, TakeTheirBytesAndNoMore) {
  const auto engine = Recall(Options("turboquant_4bit_nc"));
  ASSERT_NE(engine, nullptr);
  // Layers, heads, slot of D = 64; four of six layers keep a window of 64.
  EXPECT_EQ(engine->stats().cache_bytes_per_token, 2 * 2 * 70);
  EXPECT_EQ(engine->stats().cache_bytes_per_sequence, 4 * 2 * 70 * 64);
}

// 2 of 6 layers see all keys.
TEST(FormatsByKindOfLayer, HoldTheAnswer) {
  const auto engine = Recall(Options("full=turboquant_4bit_nc,window=int8_per_token_head"));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->cache_settings().format, "full=turboquant_4bit_nc,window=int8_per_token_head");
  std::map<std::string, int> fused = FusedOps(engine->session());
  EXPECT_EQ(fused["TurboQuantAttention"], 2);
  EXPECT_EQ(fused["PagedAttention"], 4);
  EXPECT_EQ(engine->stats().cache_bytes_per_token, 2 * 2 * 70);
  EXPECT_EQ(engine->stats().cache_bytes_per_sequence, 4 * 2 * 2 * (64 + 4) * 64);
  EXPECT_EQ(Answer(*engine), kAnswer);
}

TEST(FormatsByKindOfLayer, KeepWhatIsNotNamed) {
  const auto engine = Recall(Options("full=bf16"));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->cache_settings().format, "full=bf16,window=none");
  EXPECT_EQ(Answer(*engine), kAnswer);
}

TEST(SkippedLayers, KeepTheTypeOfTheirKeys) {
  const auto engine = Recall(Options("turboquant_3bit_nc", "0,1,-2,-1"));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->cache_settings().format, "turboquant_3bit_nc");
  EXPECT_EQ(engine->cache_settings().skipped_layers, (std::vector<int64_t>{0, 1, 4, 5}));
  // Layers 2 and 5 see all keys, the others a window of 64.
  constexpr int64_t kSlots = 2 * 54, kNumbers = 2 * 2 * 64 * 4;
  EXPECT_EQ(engine->stats().cache_bytes_per_token, kSlots + kNumbers);
  EXPECT_EQ(engine->stats().cache_bytes_per_sequence, (kSlots + 3 * kNumbers) * 64);
  EXPECT_EQ(Answer(*engine), kAnswer);
}

TEST(SkippedLayers, MustBeThere) {
  const auto engine = Engine::Create(LoadBundled("gemma3_A18"), Options("bf16", "6"));
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(engine.status().message().find("expected layers from -6 to 5, got 6"),
            std::string::npos)
      << engine.status();
}

std::unique_ptr<PagedModel> Paged(const std::string& format) {
  PagedModelOptions options{.in_pages = false};
  options.kv_cache = format;
  auto paged = PagedModel::Create(LoadBundled("gemma3_A18"), options);
  EXPECT_TRUE(paged.ok()) << paged.status();
  return paged.ok() ? *std::move(paged) : nullptr;
}

TEST(CacheRanges, AreThoseOfTheCacheHoweverPromptsAreCut) {
  const auto paged = Paged("none");
  ASSERT_NE(paged, nullptr);
  const std::vector<int64_t> prompt = LoadGreedy("gemma3_A18").prompt;
  const auto whole = MeasureCacheRanges(*paged, {prompt}, 512);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->size(), 6u);
  // The cache of the one prompt is still there.
  float largest = 0;
  for (const float x : paged->cache_tensors().at("kv_cache.3.key").values<float>()) {
    largest = std::max(largest, std::fabs(x));
  }
  EXPECT_FLOAT_EQ((*whole)[3].key, largest);
  const auto cut = MeasureCacheRanges(*paged, {prompt}, 3);
  ASSERT_TRUE(cut.ok()) << cut.status();
  for (size_t i = 0; i < whole->size(); ++i) {
    EXPECT_GT((*whole)[i].value, 0);
    EXPECT_NEAR((*cut)[i].key, (*whole)[i].key, 1e-4 * (*whole)[i].key) << i;
    EXPECT_NEAR((*cut)[i].value, (*whole)[i].value, 1e-4 * (*whole)[i].value) << i;
  }
}

TEST(CacheRanges, AreNotThoseOfCodes) {
  const auto paged = Paged("int8_per_token_head");
  ASSERT_NE(paged, nullptr);
  const absl::Status status = MeasureCacheRanges(*paged, {{1, 2}}, 8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("layer 0: expected a paged cache of keys and values as they are"),
            std::string::npos)
      << status;
}

}  // namespace
}  // namespace pagefuse
