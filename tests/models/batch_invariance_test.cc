// SPDX-License-Identifier: Apache-2.0
// The logits of a token are the same bits whatever runs beside it and whatever ran before: other
// requests, pieces of prompts, preemption, drafts, texts that begin alike.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "must.h"
#include "paths.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

constexpr std::array<const char*, 4> kWeights = {"float32", "bf16", "int8", "int4"};

// Modes of caches: of keys and values by heads, by heads that linear biases go with, and of latent rows.
using Caches = std::vector<const char*>;
const Caches& ByHead() {
  static const auto& caches = *new Caches{
      "none", "fp8_per_token_head", "turboquant_4bit_nc", "int8_per_token_head", "turboquant_k8v4",
      "bf16", "turboquant_k3v4_nc", "turboquant_3bit_nc"};
  return caches;
}
const Caches& ByHeadWithBiases() {
  static const auto& caches = *new Caches{"none", "int4_per_token_head", "bf16",
                                          "int8_per_token_head", "fp8_per_token_head"};
  return caches;
}
const Caches& Latent() {
  static const auto& caches = *new Caches{"none", "fp8", "bf16"};
  return caches;
}
const Caches& Unquantised() {
  static const auto& caches = *new Caches{"none", "bf16"};
  return caches;
}
const Caches& Own() {
  static const auto& caches = *new Caches{"none"};
  return caches;
}

struct Decoder {
  const char* name;  // a folder of models/, or a text of tests/data/decoders/
  const Caches& (*caches)();
  int64_t places = 1000;  // tokens that it has positions for, or more
  bool is_text() const { return std::string_view(name).find(".onnxtxt") != std::string_view::npos; }
  std::string path() const {
    return is_text() ? SourcePath(std::string("tests/data/decoders/") + name)
                     : SourcePath(std::string("models/") + name + "/model.onnx");
  }
  int64_t vocabulary() const { return is_text() ? 16 : 96; }  // or more
};

constexpr Decoder kDecoders[] = {
    {"gemma3_A18", ByHead},
    {"gemma3_A23", ByHead},
    {"gemma3_B18", ByHead},
    {"gemma3_D_fp32", ByHead},
    {"gemma3_D_int4", ByHead},
    {"gemma3_D_kvint8", Own},
    {"gemma3_D_paged", ByHead},
    {"gemma3_D_windowed", ByHead},
    {"deepseek_v3_A18", Latent},
    {"deepseek_v3_B18", Latent},
    {"deepseek_v3p_B18", Latent},
    {"deepseek_v32_A18", Latent},
    {"deepseek_v32_B18", Latent},
    {"deepseek_v32p_A18", Latent},
    {"deepseek_v4_A18", Latent},
    {"deepseek_v4p_A18", Latent},
    {"alibi_in_the_mask.onnxtxt", ByHeadWithBiases},
    {"bloom.onnxtxt", ByHeadWithBiases},
    {"falcon.onnxtxt", ByHeadWithBiases},
    {"mpt.onnxtxt", ByHeadWithBiases, 64},
    {"multi_head_attention.onnxtxt", ByHead, 32},
    {"shared_keys_and_values.onnxtxt", ByHead, 32},
    {"sinks.onnxtxt", ByHead, 32},
    {"two_layers.onnxtxt", ByHeadWithBiases, 40},
    {"two_grouped_layers.onnxtxt", Unquantised, 40},
    {"two_latent_layers.onnxtxt", Unquantised, 40},
};

// A decoder and a format of its weights, by their places in the lists above. Each pair has one cache, of
// those that the decoder can have in turn: 25,000 rows of logits in all, in a time that one waits for.
class BatchInvariance : public testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  const Decoder& decoder() const { return kDecoders[std::get<0>(GetParam())]; }
  std::string cache() const {
    const Caches& caches = decoder().caches();
    return caches[(std::get<0>(GetParam()) + std::get<1>(GetParam())) % caches.size()];
  }

  // How a batch is cut up further, in turn too, and otherwise than caches are.
  struct Crowd {
    const char* name;
    EngineOptions options;
  };
  Crowd CrowdOf() const {
    EngineOptions options;
    switch ((std::get<0>(GetParam()) + 2 * std::get<1>(GetParam())) % 3) {
      case 0:
        options.max_tokens_per_step = 24;
        options.block_size = 8;
        return {"steps of 24 tokens", options};
      case 1:
        options.max_tokens_per_step = 4;
        return {"steps of 4 tokens", options};
      default:
        options.cache_tokens = 176;  // the longest request needs 122
        options.session.num_threads = 2;
        return {"a cache too small for all", options};
    }
  }

  std::unique_ptr<Engine> MakeEngine(EngineOptions options) const {
    if (cache() != "none") options.kv_cache = cache();
    UseWeights(Must(FindWeightFormat(kWeights[std::get<1>(GetParam())])), options.session);
    return Must(Engine::Load(decoder().path(), options));
  }
};

std::vector<Completion> Generate(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Completion> completions = Must(engine.Generate(requests));
  EXPECT_TRUE(FirstError(completions).ok()) << FirstError(completions);
  EXPECT_EQ(engine.cache().pool().num_held(), 0);
  EXPECT_TRUE(engine.cache().CheckAccounts().ok()) << engine.cache().CheckAccounts();
  return completions;
}

// Prompts of 1 to 104 tokens, or as many as there are places for; of the tokens that follow some are
// drawn, so that they differ.
std::vector<Request> Prompts(const Decoder& decoder) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 9; ++i) {
    Request request;
    request.max_new_tokens = 10 + i;
    request.keep_logits = true;
    const int64_t length = std::clamp<int64_t>(13 * i, 1, decoder.places - request.max_new_tokens);
    for (int64_t t = 0; t < length; ++t) {
      request.prompt.push_back((5 * (i + 1) + 31 * t + t * t * (i + 3)) % decoder.vocabulary());
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
  SCOPED_TRACE(cache());
  const std::vector<Request> requests = Prompts(decoder());
  const auto bare = MakeEngine({.prefix_reuse = PrefixReuse::kOff, .drafts = false});
  const auto usual = MakeEngine({});
  std::vector<Completion> alone;
  for (const Request& request : requests) {
    alone.push_back(Generate(*bare, {request})[0]);
    EXPECT_EQ(DifferingRows({alone.back()}, Generate(*usual, {request})), 0) << "with drafts";
  }
  EXPECT_EQ(DifferingRows(alone, Generate(*bare, requests)), 0) << "together";
  EXPECT_EQ(DifferingRows(alone, Generate(*usual, requests)), 0) << "over what is there";
  EXPECT_EQ(bare->stats().shared_tokens, 0);
  const int64_t unit = PrefixTree::UnitOf(usual->cache().groups());
  int64_t longest = 0;
  for (const Request& request : requests) {
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()));
  }
  EXPECT_EQ(usual->stats().shared_tokens > 0, longest - 2 >= unit);
  const Crowd crowd = CrowdOf();
  EXPECT_EQ(DifferingRows(alone, Generate(*MakeEngine(crowd.options), requests)), 0) << crowd.name;
}

INSTANTIATE_TEST_SUITE_P(Exports, BatchInvariance,
                         testing::Combine(testing::Range(size_t{0}, std::size(kDecoders)),
                                          testing::Range(size_t{0}, kWeights.size())),
                         [](const auto& info) {
                           std::string name = kDecoders[std::get<0>(info.param)].name;
                           name = name.substr(0, name.find('.'));
                           return name + "_" + kWeights[std::get<1>(info.param)];
                         });

}  // namespace
}  // namespace pagefuse
