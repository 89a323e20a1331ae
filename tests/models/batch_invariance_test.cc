// SPDX-License-Identifier: Apache-2.0
// The logits of a token are the same bits whatever runs beside it: other requests, pieces of prompts,
// preemption.
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "must.h"
#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

struct Modes {
  const char* model;
  const char* kv_cache;  // besides none; null: none alone
};

class BatchInvariance : public testing::TestWithParam<std::tuple<Modes, const char*>> {
 protected:
  const Modes& modes() const { return std::get<0>(GetParam()); }

  std::vector<Completion> Generate(const std::vector<Request>& requests, EngineOptions options) {
    UseWeights(Must(FindWeightFormat(std::get<1>(GetParam()))), options.session);
    const auto engine = Must(Engine::Create(LoadBundled(modes().model), options));
    std::vector<Completion> completions = Must(engine->Generate(requests));
    EXPECT_EQ(engine->cache().blocks_in_use(), 0);
    return completions;
  }
};

// Prompts of 1 to 117 tokens; of the tokens that follow some are drawn, so that they differ.
std::vector<Request> Prompts(const std::string& model) {
  const std::vector<int64_t> base = LoadGreedy(model).prompt;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 9; ++i) {
    Request request;
    request.max_new_tokens = 10 + i;
    request.keep_logits = true;
    for (int64_t t = 0; t < (i == 0 ? 1 : 13 * i); ++t) {
      request.prompt.push_back((base[t % base.size()] * (i + 1) + 31 * t) % 128);
    }
    request.sampling.temperature = i % 2 == 0 ? 0 : 1.3;
    request.sampling.seed = i;
    requests.push_back(request);
  }
  return requests;
}

int64_t DifferingRows(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  int64_t rows = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << "request " << i;
    EXPECT_EQ(a[i].logits.size(), a[i].tokens.size());
    for (size_t t = 0; t < a[i].logits.size() && t < b[i].logits.size(); ++t) {
      const auto& x = a[i].logits[t];
      const auto& y = b[i].logits[t];
      const bool same =
          x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
      rows += same ? 0 : 1;
    }
  }
  return rows;
}

TEST_P(BatchInvariance, EveryLogitHasTheBitsThatItHasAlone) {
  const std::vector<Request> requests = Prompts(modes().model);
  std::vector<std::optional<std::string>> caches = {std::nullopt};
  if (modes().kv_cache != nullptr) caches.emplace_back(modes().kv_cache);
  for (const auto& cache : caches) {
    SCOPED_TRACE(cache.value_or("none"));
    const EngineOptions usual{.kv_cache = cache};
    std::vector<Completion> alone;
    for (const Request& request : requests) alone.push_back(Generate({request}, usual)[0]);
    EngineOptions tight = usual, least = usual, full = usual;
    tight.max_tokens_per_step = 24;
    tight.block_size = 8;
    least.max_tokens_per_step = 4;
    full.cache_tokens = 176;  // the longest request needs 121
    full.session.num_threads = 2;
    EXPECT_EQ(DifferingRows(alone, Generate(requests, usual)), 0) << "together";
    EXPECT_EQ(DifferingRows(alone, Generate(requests, tight)), 0) << "steps of 24 tokens";
    EXPECT_EQ(DifferingRows(alone, Generate(requests, least)), 0) << "steps of 4 tokens";
    EXPECT_EQ(DifferingRows(alone, Generate(requests, full)), 0) << "a cache too small for all";
  }
}

constexpr Modes kModes[] = {
    {"gemma3_B18", "fp8_per_token_head"}, {"gemma3_A23", "turboquant_4bit_nc"},
    {"deepseek_v3_B18", "fp8"},           {"deepseek_v32_B18", nullptr},
    {"deepseek_v32p_A18", "fp8"},         {"deepseek_v4_A18", "fp8"},
    {"deepseek_v4p_A18", nullptr},
};

// Products of 8 and 4 bits have their sums in another order where rows are many.
INSTANTIATE_TEST_SUITE_P(Exports, BatchInvariance,
                         testing::Combine(testing::ValuesIn(kModes),
                                          testing::Values("float32", "bf16")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).model) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace pagefuse
