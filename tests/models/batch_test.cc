// SPDX-License-Identifier: Apache-2.0
// Requests never change each other's results, and the cache accounts for every block.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

// Heads of keys and values in two groups, latent rows, and latent rows of which an indexer chooses
// 12: prompts of 3 tokens see fewer; windows, states and compressed rows of two ratios.
class Batch : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Exports, Batch,
                         testing::Values("gemma3_B18", "deepseek_v3_B18", "deepseek_v32_B18",
                                         "deepseek_v4_A18"),
                         [](const auto& info) { return std::string(info.param); });

std::vector<Request> EightPrompts(const std::string& name) {
  const std::vector<int64_t> base = LoadGreedy(name).prompt;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 8; ++i) {
    Request request;
    for (int64_t t = 0; t < 3 + 17 * i; ++t) {
      request.prompt.push_back((base[t % base.size()] * (i + 1) + 31 * t) % 128);
    }
    request.max_new_tokens = 12 + i;
    requests.push_back(request);
  }
  return requests;
}

using Tokens = std::vector<std::vector<int64_t>>;

Tokens Alone(const std::string& name, const std::vector<Request>& requests, EngineOptions options) {
  options.prefix_reuse = PrefixReuse::kOff;
  options.drafts = false;
  auto engine = Engine::Create(LoadBundled(name), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  Tokens tokens;
  for (const Request& request : requests)
    tokens.push_back((*engine)->Generate({request}).value()[0].tokens);
  return tokens;
}

// What each of the eight prompts gives alone, generated once.
const Tokens& EightAlone(const std::string& name) {
  static auto* all = new std::map<std::string, Tokens>;
  const auto [it, inserted] = all->try_emplace(name);
  if (inserted) it->second = Alone(name, EightPrompts(name), {});
  return it->second;
}

Tokens Together(const std::string& name, const std::vector<Request>& requests,
                const EngineOptions& options) {
  auto engine = Engine::Create(LoadBundled(name), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  Tokens tokens;
  auto completions = (*engine)->Generate(requests);
  EXPECT_TRUE(completions.ok()) << completions.status();
  for (const Completion& completion : *completions) tokens.push_back(completion.tokens);
  EXPECT_EQ((*engine)->cache().pool().num_held(), 0);
  return tokens;
}

TEST_P(Batch, EightPromptsGiveTheTokensThatEachGivesAlone) {
  const std::vector<Request> requests = EightPrompts(GetParam());
  EXPECT_EQ(Together(GetParam(), requests, {}), EightAlone(GetParam()));
}

TEST_P(Batch, ChunkedPrefillAndFewSequencesAtOnceChangeNothing) {
  const std::vector<Request> requests = EightPrompts(GetParam());
  EngineOptions tight;
  tight.max_tokens_per_step = 24;
  tight.max_sequences = 3;
  tight.block_size = 8;
  EXPECT_EQ(Together(GetParam(), requests, tight), EightAlone(GetParam()));
}

int64_t ComputedTokens(const Engine& engine) {
  return engine.stats().prefill_tokens + engine.stats().decode_tokens;
}

TEST_P(Batch, PreemptionByAFullCacheChangesNothing) {
  std::vector<Request> requests = EightPrompts(GetParam());
  // More than what a request has to find room for when it starts.
  for (Request& request : requests) request.max_new_tokens += 90;
  int64_t once = 0;  // the last token of each is not computed
  for (const Request& request : requests) {
    once += static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens - 1;
  }
  const Tokens alone = Alone(GetParam(), requests, {});
  const auto paged = PagedModel::Create(LoadBundled(GetParam()), {});
  ASSERT_TRUE(paged.ok()) << paged.status();
  const CacheLayout& layout = (*paged)->layout();
  // The longest request needs 231 tokens.
  const int64_t least = layout.PagesFor({232}, EngineOptions().max_tokens_per_step);
  bool gave_back = false;
  for (const int64_t pages : {int64_t{0}, least, least * 5 / 4, least * 3 / 2, least * 2}) {
    int64_t computed = 0;
    EngineOptions options{.cache_bytes = pages * layout.bytes_per_page(), .drafts = false};
    options.on_step = [&computed](const EngineStep& step) {
      computed += step.tokens;
      return absl::OkStatus();
    };
    EXPECT_EQ(Together(GetParam(), requests, options), alone) << pages;
    EXPECT_TRUE(pages > 0 || computed == once) << computed;
    gave_back = gave_back || computed > once;
  }
  // Where most pages are of windows of 16 tokens, those that wait leave room enough.
  const bool has_windows = std::ranges::any_of(
      layout.groups(), [](const CacheGroup& group) { return group.sliding_window > 0; });
  EXPECT_TRUE(gave_back || has_windows) << "no request gave its pages back";
}

// Beginnings that end inside blocks and windows: 16 to 37 tokens.
TEST_P(Batch, PromptsThatBeginAlikeShareTheirCache) {
  std::vector<Request> requests = EightPrompts(GetParam());
  const std::vector<int64_t> beginning = requests[3].prompt;
  for (size_t i = 4; i < requests.size(); ++i) {
    std::copy_n(beginning.begin(), 16 + 7 * (i - 4), requests[i].prompt.begin());
  }
  const auto alone = Alone(GetParam(), requests, {});
  for (const int64_t step : {19, 512}) {
    auto engine = Engine::Create(PagedBundled(GetParam()), {.max_tokens_per_step = step});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto completions = (*engine)->Generate(requests);
    ASSERT_TRUE(completions.ok()) << completions.status();
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ((*completions)[i].tokens, alone[i]) << i;
    const int64_t unit = PrefixTree::UnitOf((*engine)->cache().groups());
    if (unit > 37) {
      EXPECT_EQ((*engine)->stats().shared_tokens, 0);
    } else {
      ASSERT_EQ(unit, 16);
      EXPECT_GE((*engine)->stats().shared_tokens, 16) << step;
      if (step == 512) {
        EXPECT_EQ((*engine)->stats().shared_tokens, 16 + 16 + 16 + 32);  // of 16, 23, 30, 37
      }
    }
    EXPECT_EQ((*engine)->cache().pool().num_held(), 0);
  }
}

// A prompt ends inside a block, and behind 1 to 3 tokens of a window of 4 and 1 to 7 of one of 8.
class Forks : public testing::TestWithParam<std::tuple<const char*, int>> {};

INSTANTIATE_TEST_SUITE_P(Exports, Forks,
                         testing::Combine(testing::Values("gemma3_B18", "deepseek_v3_B18",
                                                          "deepseek_v32_B18", "deepseek_v4_A18"),
                                          testing::Values(3, 9, 14, 19, 23)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(Forks, GoOnAsEachAlone) {
  const auto& [name, length] = GetParam();
  Request request = EightPrompts(name)[2];
  request.prompt.resize(length);
  request.samples = 4;
  request.keep_logits = true;
  request.sampling.temperature = 1.5;
  request.sampling.seed = 7;
  auto engine = Engine::Create(PagedBundled(name), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto together = (*engine)->Generate({request});
  ASSERT_TRUE(together.ok()) << together.status();
  ASSERT_EQ(together->size(), 4u);
  EXPECT_NE((*together)[0].tokens, (*together)[1].tokens);
  EXPECT_EQ((*engine)->stats().prefill_tokens, length);
  request.samples = 1;
  for (const Completion& forked : *together) {
    request.forced = forked.tokens;
    const auto alone = (*engine)->Generate({request});
    ASSERT_TRUE(alone.ok()) << alone.status();
    for (size_t t = 0; t < forked.tokens.size(); ++t) {
      EXPECT_LE(MaxDifference((*alone)[0].logits[t], forked.logits[t]), 2e-5) << "token " << t;
    }
  }
}

// Turns of 5 and 6 new tokens behind 37: each ends at another place of a window of 4 or 8.
TEST_P(Batch, TurnsOfAConversationAreAnsweredAsFromTheBeginning) {
  auto engine = Engine::Create(PagedBundled(GetParam()), {});
  auto fresh = Engine::Create(PagedBundled(GetParam()), {.prefix_reuse = PrefixReuse::kOff});
  ASSERT_TRUE(engine.ok() && fresh.ok()) << engine.status() << fresh.status();
  const std::vector<int64_t> source = EightPrompts(GetParam())[7].prompt;
  std::vector<int64_t> text;
  for (int i = 0; i < 37; ++i) text.push_back(source[i % source.size()]);
  int64_t cached = 0;
  const auto expect_answer = [&] {
    const Request request{.prompt = text, .max_new_tokens = 10, .keep_logits = true};
    const int64_t before = ComputedTokens(**engine);
    const auto got = (*engine)->Generate({request});
    ASSERT_TRUE(got.ok()) << got.status();
    cached = (*got)[0].cached_tokens;
    EXPECT_EQ(ComputedTokens(**engine) - before, static_cast<int64_t>(text.size()) - cached + 9);
    const auto want = (*fresh)->Generate({request});
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_EQ((*got)[0].tokens, (*want)[0].tokens);
    EXPECT_EQ((*got)[0].logits, (*want)[0].logits);  // the same bits
    text.insert(text.end(), (*got)[0].tokens.begin(), (*got)[0].tokens.end());
  };
  const int64_t unit = PrefixTree::UnitOf((*engine)->cache().groups());
  const auto known = [&](int64_t length) { return (length - 2) / unit * unit; };
  expect_answer();
  EXPECT_EQ(cached, 0);
  int64_t length = 37;
  for (const int turn : {5, 6}) {
    text.insert(text.end(), source.end() - turn, source.end());
    const auto next = static_cast<int64_t>(text.size());
    expect_answer();
    EXPECT_GE(cached, known(length));
    EXPECT_LE(cached, length / unit * unit);
    length = next;
  }
  // Another answer was given to the last prompt: what stands behind that prompt is computed anew.
  text.resize(text.size() - 10);
  text.insert(text.end(), source.begin(), source.begin() + 3);
  expect_answer();
  EXPECT_GE(cached, known(length));
  EXPECT_LE(cached, length / unit * unit);
}

TEST(QuantisedBatch, KeepsRequestsApartToo) {
  const std::vector<Request> requests = EightPrompts("gemma3_B18");
  EngineOptions options;
  options.kv_cache = "int8_per_token_head";
  EXPECT_EQ(Together("gemma3_B18", requests, options), Alone("gemma3_B18", requests, options));
}

// Rows and index keys in 8 bits, in short steps and a cache that not all fit into at once.
void ExpectApartInEightBits(const std::string& model) {
  const std::vector<Request> requests = EightPrompts(model);
  EngineOptions options;
  options.kv_cache = "fp8";
  options.session.pipeline.options["indexer_cache"] = "fp8";
  EngineOptions tight = options;
  tight.max_tokens_per_step = 24;
  tight.cache_tokens = 176;
  EXPECT_EQ(Together(model, requests, tight), Alone(model, requests, options));
}

TEST(QuantisedBatch, KeepsLatentRowsAndIndexKeysApartToo) {
  ExpectApartInEightBits("deepseek_v32p_A18");
}

TEST(QuantisedBatch, KeepsWindowsAndCompressedRowsApartToo) {
  ExpectApartInEightBits("deepseek_v4_A18");
}

TEST(Engine, ARequestThatCannotFitSaysSoAndLeavesNothing) {
  EngineOptions options;
  options.cache_tokens = 32;
  auto engine = Engine::Create(LoadBundled("gemma3_B18"), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  Request request{.prompt = std::vector<int64_t>(400, 7)};
  EXPECT_EQ((*engine)->Generate({request}).value()[0].error.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*engine)->cache().pool().num_held(), 0);
}

TEST(Engine, BadRequestsAreNamed) {
  auto engine = Engine::Create(LoadBundled("gemma3_B18"), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto completions = (*engine)->Generate({Request{}, Request{.prompt = {256}}});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*completions)[0].error.message(), "prompt: expected one token at least, got none");
  EXPECT_EQ((*completions)[1].error.message(),
            "prompt: token 256 is outside the vocabulary: expected 0 to 255");
}

TEST(Engine, UnknownCacheFormatsAreRefusedWithTheKnownOnes) {
  const EngineOptions options{.kv_cache = "fp4"};
  auto engine = Engine::Create(LoadBundled("gemma3_B18"), options);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(engine.status().message().find("fp8_per_token_head"), absl::string_view::npos);
}

}  // namespace
}  // namespace pagefuse
