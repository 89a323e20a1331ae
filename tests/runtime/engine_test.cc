// SPDX-License-Identifier: Apache-2.0
// The engine over a tiny decoder: what it refuses, and that nothing is left behind.
#include "pagefuse/runtime/engine.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <limits>
#include <stdexcept>
#include <thread>

#include "fake_device.h"
#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Engine> MakeEngine(EngineOptions options = {}, int64_t window = 0) {
  options.block_size = 4;
  options.device = TestDevice();
  return Must(Engine::Create(TinyDecoder(window), options));
}

std::string CreateError(const EngineOptions& options) {
  return std::string(StdView(Engine::Create(TinyDecoder(), options).status().message()));
}

std::string GenerateError(Engine& engine, const Request& request) {
  const auto completions = engine.Generate({request});
  const absl::Status status = completions.ok() ? FirstError(*completions) : completions.status();
  EXPECT_EQ(engine.cache().pool().num_held(), 0);
  return std::string(StdView(status.message()));
}

std::vector<Request> SixRequests() {
  std::vector<Request> requests(6);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t t = 0; t < 1 + 5 * i; ++t) {
      requests[i].prompt.push_back((7 * t * (i + 1) + 3 * i) % kTinyVocabulary);
    }
    requests[i].max_new_tokens = 15 - 2 * i;
  }
  return requests;
}

std::vector<std::vector<int64_t>> Tokens(Engine& engine, const std::vector<Request>& requests) {
  const std::vector<Completion> completions = Must(engine.Generate(requests));
  EXPECT_EQ(engine.cache().pool().num_held(), 0);
  std::vector<std::vector<int64_t>> tokens;
  for (const Completion& completion : completions) tokens.push_back(completion.tokens);
  return tokens;
}

std::vector<std::vector<int64_t>> OneByOne(const std::vector<Request>& requests, int64_t window) {
  const std::unique_ptr<Engine> engine = MakeEngine({}, window);
  std::vector<std::vector<int64_t>> tokens;
  for (const Request& request : requests) tokens.push_back(Tokens(*engine, {request})[0]);
  return tokens;
}

TEST(Engine, ABatchGivesTheTokensThatEachRequestGivesAlone) {
  for (int64_t window : {0, 5}) {
    const auto alone = OneByOne(SixRequests(), window);
    EXPECT_EQ(Tokens(*MakeEngine({}, window), SixRequests()), alone);
    EngineOptions tight;
    tight.max_tokens_per_step = 4;
    tight.max_sequences = 2;
    EXPECT_EQ(Tokens(*MakeEngine(tight, window), SixRequests()), alone);
    EngineOptions small;
    small.cache_tokens = 36;  // the longest request has 31 tokens
    EXPECT_EQ(Tokens(*MakeEngine(small, window), SixRequests()), alone);
  }
}

// Prompts that begin alike: all of one, parts of others, and one with nothing of them.
std::vector<Request> AlikeRequests() {
  std::vector<Request> requests(6);
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t shared = i == 4 ? 0 : 17 + 3 * (i % 3);
    for (int64_t t = 0; t < 24 + i; ++t) {
      requests[i].prompt.push_back((5 * t + (t < shared ? 1 : i * t + 2)) % kTinyVocabulary);
    }
    requests[i].max_new_tokens = 9 + i;
  }
  requests[5].prompt = requests[0].prompt;
  return requests;
}

TEST(Engine, PromptsThatBeginAlikeAreComputedOnceAndAnswerAsAlone) {
  for (int64_t window : {0, 5}) {
    const auto alone = OneByOne(AlikeRequests(), window);
    EngineOptions apart;
    apart.prefix_reuse = PrefixReuse::kOff;
    const auto engine_apart = MakeEngine(apart, window);
    EXPECT_EQ(Tokens(*engine_apart, AlikeRequests()), alone);
    EXPECT_EQ(engine_apart->stats().shared_tokens, 0);
    for (const int64_t step : {12, 512}) {
      EngineOptions options;
      options.max_tokens_per_step = step;
      const auto engine = MakeEngine(options, window);
      EXPECT_EQ(Tokens(*engine, AlikeRequests()), alone) << window << " " << step;
      EXPECT_GT(engine->stats().shared_tokens, 16) << window << " " << step;
      EXPECT_EQ(engine->stats().shared_tokens + engine->stats().prefill_tokens +
                    engine->stats().decode_tokens,
                engine_apart->stats().prefill_tokens + engine_apart->stats().decode_tokens);
    }
    EngineOptions small;
    small.cache_tokens = 44;  // the longest request has 42 tokens
    EXPECT_EQ(Tokens(*MakeEngine(small, window), AlikeRequests()), alone);
  }
}

TEST(Engine, TokensDependOnWhatStandsBefore) {
  // Else the other tests here would prove little.
  const auto tokens = OneByOne(SixRequests(), 0);
  std::set<std::vector<int64_t>> different(tokens.begin(), tokens.end());
  EXPECT_EQ(different.size(), tokens.size());
  EXPECT_NE(OneByOne(SixRequests(), 5), tokens);
}

TEST(Engine, RunsTwiceOnOneEngine) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  const auto first = Tokens(*engine, SixRequests());
  EXPECT_EQ(Tokens(*engine, SixRequests()), first);
}

TEST(Engine, BadRequestsAreNamed) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  EXPECT_EQ(GenerateError(*engine, {}), "request 0: prompt: expected one token at least, got none");
  EXPECT_EQ(GenerateError(*engine, {.prompt = {1, 23}}),
            "request 0: prompt: token 23 is outside the vocabulary: expected 0 to 22");
  EXPECT_EQ(GenerateError(*engine, {.prompt = {-1}}),
            "request 0: prompt: token -1 is outside the vocabulary: expected 0 to 22");
  EXPECT_EQ(GenerateError(*engine, {.prompt = {1}, .forced = {99}}),
            "request 0: forced: token 99 is outside the vocabulary: expected 0 to 22");
  EXPECT_EQ(GenerateError(*engine, {.prompt = {1}, .max_new_tokens = -1}),
            "request 0: max_new_tokens: expected 0 to 2147483646 after a prompt of 1, got -1");
  EXPECT_THAT(GenerateError(*engine,
                            {.prompt = {1}, .max_new_tokens = std::numeric_limits<int64_t>::max()}),
              HasSubstr("got 9223372036854775807"));
  // The second of two.
  EXPECT_EQ(StdView(FirstError(Must(engine->Generate({{.prompt = {1}}, {}}))).message()),
            "request 1: prompt: expected one token at least, got none");
}

TEST(Engine, BadOptionsAreNamed) {
  EXPECT_EQ(CreateError({.max_tokens_per_step = 3}),
            "engine: max_tokens_per_step: expected 4 or more, got 3");
  EXPECT_EQ(
      CreateError({.max_sequences = -2}),
      "engine: max_sequences: expected 1 to 256, half of max_tokens_per_step, so that prompts "
      "have the rest, got -2");
  EXPECT_EQ(CreateError({.max_tokens_per_step = 9, .max_sequences = 5}),
            "engine: max_sequences: expected 1 to 4, half of max_tokens_per_step, so that prompts "
            "have the rest, got 5");
  EXPECT_EQ(CreateError({.cache_tokens = -1}), "engine: cache_tokens: expected 0 or more, got -1");
  EXPECT_EQ(CreateError({.cache_bytes = -1}), "engine: cache_bytes: expected 0 or more, got -1");
  EXPECT_EQ(CreateError({.cache_bytes = 1023}),
            "engine: cache_bytes: expected 1024 or more, a page of 1024 for each group, got 1023");
  EXPECT_EQ(CreateError({.cache_bytes = 1024}), "");
  EXPECT_EQ(CreateError({.cache_tokens = 8, .cache_bytes = 8}),
            "engine: cache_bytes: expected none beside cache_tokens");
  EXPECT_EQ(CreateError({.step_seconds = 0}), "engine: step_seconds: expected more than 0, got 0");
  EXPECT_THAT(CreateError({.block_size = 0}),
              HasSubstr("block_size: expected 1 to 1048576, got \"0\""));
  EXPECT_THAT(CreateError({.block_size = std::numeric_limits<int64_t>::max()}),
              HasSubstr("block_size: expected 1 to 1048576, got \"9223372036854775807\""));
}

TEST(Engine, AGraphThatIsPagedKeepsItsCache) {
  Model paged = TinyDecoder();
  Must(RunPipeline(paged, {.options = {{"kv_cache", "int8_per_token_head"}, {"block_size", "8"}}}));
  const auto create = [&paged](const EngineOptions& options) {
    return Engine::Create(paged.Clone(), options);
  };
  for (const EngineOptions& options :
       {EngineOptions(), EngineOptions{.kv_cache = "int8_per_token_head", .block_size = 8}}) {
    const auto engine = Must(create(options));
    EXPECT_EQ(engine->cache_settings().format, "int8_per_token_head");
    EXPECT_EQ(engine->cache_settings().block_size, 8);
  }
  EXPECT_EQ(create({.kv_cache = "none"}).status().message(),
            "option kv_cache: \"none\" is asked for, but the paged cache of the graph is "
            "\"int8_per_token_head\" already");
  EXPECT_EQ(create({.block_size = 16}).status().message(),
            "option block_size: 16 is asked for, but the paged cache of the graph has blocks of 8 "
            "tokens already");
}

TEST(Engine, ACacheThatNobodyAskedForIsThePlainOne) {
  const auto engine = Must(Engine::Create(TinyDecoder(), {}));
  EXPECT_EQ(engine->cache_settings().format, "none");
  EXPECT_EQ(engine->cache_settings().block_size, 16);
}

TEST(Session, ThreadsAreBounded) {
  for (const int threads : {-1, kMaxThreads + 1, 100000}) {
    EXPECT_EQ(Session::Create(TinyDecoder(), {.num_threads = threads}).status().message(),
              absl::StrCat("num_threads: expected 0 to 1024, got ", threads));
  }
}

TEST(Engine, HugeLimitsAreNoProblem) {
  EngineOptions options;
  options.max_tokens_per_step = std::numeric_limits<int64_t>::max();
  options.max_sequences = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(Tokens(*MakeEngine(options, 5), SixRequests()), OneByOne(SixRequests(), 5));
}

TEST(Engine, APromptThatDoesNotFitSaysSo) {
  EngineOptions options;
  options.cache_tokens = 16;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request request = {.prompt = std::vector<int64_t>(17, 3), .max_new_tokens = 1};
  EXPECT_EQ(
      GenerateError(*engine, request),
      "request 0: prompt and max_new_tokens: needs 5 pages of 256 bytes at 17 tokens, the cache "
      "has 4: at most 16 tokens");
}

TEST(Engine, LogitsWithoutColumnsHaveNoLargest) {
  const auto engine = Must(Engine::Create(TinyDecoder(/*window=*/0, /*columns=*/0), {}));
  EXPECT_EQ(GenerateError(*engine, {.prompt = {1, 2}, .max_new_tokens = 3}),
            "request 0: engine: logits: expected at least one column, got none");
}

TEST(Engine, ATextThatWouldOutgrowTheCacheIsRefusedAtOnce) {
  EngineOptions options;
  options.cache_tokens = 16;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const auto completions = Must(engine->Generate({{.prompt = {1, 2, 3}, .max_new_tokens = 40}}));
  EXPECT_EQ(completions[0].error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(completions[0].error.message()),
              HasSubstr("at 42 tokens, the cache has 4: at most 16 tokens"));
  EXPECT_EQ(engine->stats().steps, 0);
  // The last token is not run: 16 are, and fill it.
  EXPECT_EQ(Tokens(*engine, {{.prompt = {1, 2, 3}, .max_new_tokens = 14}})[0].size(), 14u);
}

TEST(Engine, SaysHowManyTokensFit) {
  EngineOptions options;
  EXPECT_GT(MakeEngine(options)->capacity(), 1000000);  // of what memory there is
  options.cache_bytes = 64 * 1000;
  EXPECT_EQ(MakeEngine(options)->capacity(), 1000);
  options.cache_bytes = 0;
  options.cache_tokens = 17;
  EXPECT_EQ(MakeEngine(options)->capacity(), 20);
  options.cache_tokens = 1;
  EXPECT_EQ(MakeEngine(options)->capacity(), 4);
}

TEST(Engine, NoRequestsAndNoTokensAreFine) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  EXPECT_TRUE(engine->Generate({})->empty());
  EXPECT_THAT(Tokens(*engine, {{.prompt = {1}, .max_new_tokens = 0}}),
              ElementsAre(std::vector<int64_t>()));
  EXPECT_EQ(engine->stats().steps, 0);
}

TEST(Engine, StopTokensEndATextAndForcedOnesReplaceIt) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  const std::vector<int64_t> free = Tokens(*engine, {{.prompt = {5, 1}, .max_new_tokens = 8}})[0];
  const auto stop = std::find(free.begin(), free.end(), free[3]);
  const std::vector<int64_t> stopped =
      Tokens(*engine, {{.prompt = {5, 1}, .max_new_tokens = 8, .stop_tokens = {free[3]}}})[0];
  EXPECT_EQ(stopped, std::vector<int64_t>(free.begin(), stop + 1));
  // What is forced is what would have come: nothing changes. Else the next ones do.
  EXPECT_EQ(Tokens(*engine, {{.prompt = {5, 1}, .max_new_tokens = 8, .forced = free}})[0], free);
  const std::vector<int64_t> longer =
      Tokens(*engine, {{.prompt = {5, 1, 9}, .max_new_tokens = 7}})[0];
  const std::vector<int64_t> forced =
      Tokens(*engine, {{.prompt = {5, 1}, .max_new_tokens = 8, .forced = {9}}})[0];
  EXPECT_EQ(forced[0], free[0]);
  EXPECT_EQ(std::vector<int64_t>(forced.begin() + 1, forced.end()), longer);
}

TEST(Engine, KeepsARowOfLogitsForEveryToken) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  const std::vector<Completion> completions =
      Must(engine->Generate({{.prompt = {5, 1}, .max_new_tokens = 3, .keep_logits = true},
                             {.prompt = {2}, .max_new_tokens = 3}}));
  const Completion& kept = completions[0];
  ASSERT_EQ(kept.logits.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(kept.logits[i].size(), static_cast<size_t>(kTinyVocabulary));
    const auto best = std::max_element(kept.logits[i].begin(), kept.logits[i].end());
    EXPECT_EQ(best - kept.logits[i].begin(), kept.tokens[i]);
  }
  EXPECT_TRUE(completions[1].logits.empty());
}

TEST(Engine, CountsWhatItDid) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  Tokens(*engine, {{.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 4}});
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.steps, 4);
  EXPECT_EQ(stats.prefill_tokens, 5);
  EXPECT_EQ(stats.decode_tokens, 3);
  EXPECT_EQ(stats.peak_pages, 2);
  EXPECT_EQ(stats.cache_bytes_per_token, 2 * 8 * 4);
}

// One engine a thread: they share nothing but the code and the threads that help.
TEST(Engine, EnginesOfDifferentThreadsDoNotDisturbEachOther) {
  const auto want = OneByOne(SixRequests(), 0);
  std::vector<std::vector<std::vector<int64_t>>> got(3);
  std::vector<std::thread> threads;
  for (auto& tokens : got) {
    threads.emplace_back([&tokens] {
      const std::unique_ptr<Engine> engine = MakeEngine();
      for (int round = 0; round < 3; ++round) tokens = Tokens(*engine, SixRequests());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& tokens : got) EXPECT_EQ(tokens, want);
}

// Engines that are told to stop behind so many steps of a call.
EngineOptions StopsBehind(int* left) {
  EngineOptions options;
  options.max_tokens_per_step = 4;
  options.on_step = [left](const EngineStep&) {
    return --*left == 0 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  return options;
}

std::vector<int64_t> LongPrompt() {
  std::vector<int64_t> prompt;
  for (int64_t t = 0; t < 40; ++t) prompt.push_back((3 * t + 1) % kTinyVocabulary);
  return prompt;
}

int64_t Computed(const Engine& engine) {
  return engine.stats().prefill_tokens + engine.stats().decode_tokens;
}

// A conversation of turns: each prompt is the last one, its answer, and something new. What was read
// is there in whole blocks, and a window where texts can go on; answers are read once more.
TEST(EngineTexts, TurnsComputeWhatIsNewAndAnswerAsFromTheBeginning) {
  EngineOptions apart;
  apart.prefix_reuse = PrefixReuse::kOff;
  for (const int64_t window : {0, 8}) {
    const std::unique_ptr<Engine> engine = MakeEngine({}, window);
    const std::unique_ptr<Engine> fresh = MakeEngine(apart, window);
    std::vector<int64_t> text = {1, 2, 3, 4, 5, 6, 7};
    int64_t known = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const Request request = {.prompt = text, .max_new_tokens = 6};
      const int64_t before = Computed(*engine);
      const auto answer = Must(engine->Generate({request}))[0];
      const auto length = static_cast<int64_t>(text.size());
      EXPECT_EQ(answer.tokens, Tokens(*fresh, {request})[0]) << turn;
      EXPECT_EQ(answer.cached_tokens, known) << turn;
      EXPECT_EQ(Computed(*engine) - before, length - known + 5) << turn;
      known = (window > 0 ? length - 2 : length) / 4 * 4;
      text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
      text.insert(text.end(), {turn % kTinyVocabulary, 3});
    }
    EXPECT_EQ(engine->cache().pool().num_held(), 0);
    EXPECT_TRUE(engine->cache().CheckAccounts().ok()) << engine->cache().CheckAccounts();
  }
}

// An answer is read once more while nobody asks, and at the next turn it is there.
TEST(EngineTexts, AnswersAreReadWhileNobodyAsks) {
  EngineOptions apart;
  apart.prefix_reuse = PrefixReuse::kOff;
  for (const bool rereads : {true, false}) {
    const std::unique_ptr<Engine> engine = MakeEngine({.rereads = rereads}, 8);
    Request request = {.prompt = LongPrompt(), .max_new_tokens = 21};
    const Completion answer = Must(engine->Generate({request}))[0];
    int64_t read = 0;
    for (StepReport report = engine->Step(); report.tokens > 0; report = engine->Step()) {
      EXPECT_TRUE(report.rereads);
      read += report.tokens;
    }
    EXPECT_EQ(read,
              rereads ? 40 + 21 - 36 : 0);  // a window goes on at 36 of 40, two are left to read
    EXPECT_EQ(engine->cache().pool().num_held(), 0);
    request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    request.prompt.push_back(3);
    const Completion next = Must(engine->Generate({request}))[0];
    EXPECT_EQ(next.cached_tokens, rereads ? 56 : 36);
    EXPECT_EQ(next.tokens, Tokens(*MakeEngine(apart, 8), {request})[0]);
  }
}

// Written rows taken for read ones: nothing of an answer is read again, up to whole blocks.
TEST(EngineTexts, AnswersAreThereAtOnceWhereTheirBitsDoNotMatter) {
  for (const int64_t window : {0, 8}) {
    const std::unique_ptr<Engine> engine =
        MakeEngine({.prefix_reuse = PrefixReuse::kAll, .rereads = false}, window);
    Request request = {.prompt = LongPrompt(), .max_new_tokens = 21};
    const Completion answer = Must(engine->Generate({request}))[0];
    request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    request.prompt.push_back(3);
    EXPECT_EQ(Must(engine->Generate({request}))[0].cached_tokens, 60);  // the last one was not run
    EXPECT_EQ(engine->cache().pool().num_held(), 0);
    EXPECT_TRUE(engine->cache().CheckAccounts().ok()) << engine->cache().CheckAccounts();
  }
}

// Somebody who asks meanwhile does not wait for it.
TEST(EngineTexts, ReadingOfAnswersEndsWhenSomebodyAsks) {
  const std::unique_ptr<Engine> engine = MakeEngine({.max_tokens_per_step = 4});
  Must(engine->Generate({{.prompt = LongPrompt(), .max_new_tokens = 21}}));
  EXPECT_TRUE(engine->Step().rereads);
  const Request request = {.prompt = {1, 2, 3}, .max_new_tokens = 2};
  bool done = false;
  Must(engine->Submit(request, {.on_done = [&](int64_t, const Completion&) { done = true; }}));
  EXPECT_FALSE(engine->Step().rereads);
  while (!done) EXPECT_FALSE(engine->Step().rereads);
  EXPECT_TRUE(engine->cache().CheckAccounts().ok()) << engine->cache().CheckAccounts();
}

TEST(EngineTexts, AreKeptApartBySalt) {
  const std::unique_ptr<Engine> engine = MakeEngine();
  Request request = {.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, .max_new_tokens = 3};
  const std::vector<std::pair<std::string, int64_t>> calls = {
      {"", 0}, {"a", 0}, {"", 8}, {"a", 8}, {"b", 0}};
  for (const auto& [salt, cached] : calls) {
    request.cache_salt = salt;
    EXPECT_EQ(Must(engine->Generate({request}))[0].cached_tokens, cached) << salt;
  }
}

TEST(Engine, EndsBehindTheStepThatIsNotToBeFollowedByAnother) {
  int left = 2;
  const std::unique_ptr<Engine> engine = MakeEngine(StopsBehind(&left));
  const Request request = {.prompt = LongPrompt(), .max_new_tokens = 3};
  EXPECT_EQ(engine->Generate({request}).status(), absl::CancelledError("enough"));
  EXPECT_EQ(engine->stats().steps, 2);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
  EXPECT_EQ(Tokens(*engine, {request}), Tokens(*MakeEngine(), {request}));
}

TEST(EngineTexts, KeepWhatWasReadBeforeACallWasStopped) {
  int left = 0;
  const std::unique_ptr<Engine> engine = MakeEngine(StopsBehind(&left));
  Request request = {.prompt = LongPrompt(), .max_new_tokens = 3};
  Must(engine->Generate({request}));
  const std::vector<int64_t> more = LongPrompt();
  request.prompt.insert(request.prompt.end(), more.begin(), more.end());
  left = 2;
  EXPECT_EQ(engine->Generate({request}).status(), absl::CancelledError("enough"));
  const Completion completion = Must(engine->Generate({request}))[0];
  EXPECT_EQ(completion.tokens, Tokens(*MakeEngine(), {request})[0]);
  EXPECT_EQ(completion.cached_tokens, 44);  // of two steps one was done
}

// What a request is told, and when.
struct Told {
  std::vector<int64_t> tokens;
  std::vector<Completion> done;
  Sink sink() {
    return {.on_token =
                [this](const NewToken& token) {
                  tokens.push_back(token.token);
                  return true;
                },
            .on_done = [this](int64_t,
                              Completion completion) { done.push_back(std::move(completion)); }};
  }
};

TEST(EngineSteps, RequestsComeAndGoBetweenSteps) {
  const auto requests = SixRequests();
  const auto alone = OneByOne(requests, 0);
  const std::unique_ptr<Engine> engine = MakeEngine();
  std::vector<Told> told(requests.size());
  EXPECT_EQ(engine->Step().tokens, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    Must(engine->Submit(requests[i], told[i].sink()));
    EXPECT_GT(engine->Step().tokens, 0);
  }
  while (engine->Step().tokens > 0) {
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(told[i].tokens, alone[i]) << i;
    ASSERT_EQ(told[i].done.size(), 1u);
    EXPECT_EQ(told[i].done[0].tokens, alone[i]);
  }
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
}

TEST(EngineSteps, ACancelledRequestGivesAllBackAndOthersGoOn) {
  const auto requests = SixRequests();
  const auto alone = OneByOne(requests, 0);
  for (int when = 0; when < 12; ++when) {
    const std::unique_ptr<Engine> engine = MakeEngine({.drafts = false});  // a token a step
    Told told, other;
    Request two = requests[1];
    two.samples = 2;
    const RequestId id = Must(engine->Submit(two, told.sink()));
    Must(engine->Submit(requests[0], other.sink()));
    for (int step = 0; step < when; ++step) engine->Step();
    engine->Cancel(id + 100);  // nobody
    engine->Cancel(id);
    while (engine->Step().tokens > 0) {
    }
    ASSERT_EQ(told.done.size(), 2u) << when;
    for (const Completion& completion : told.done) {
      EXPECT_EQ(completion.finish, FinishReason::kCancelled) << when;
      EXPECT_EQ(completion.tokens.size(), static_cast<size_t>(when)) << when;
    }
    EXPECT_EQ(other.done.at(0).tokens, alone[0]) << when;
    EXPECT_EQ(engine->cache().pool().num_held(), 0) << when;
  }
}

TEST(EngineSteps, ASinkThatThrowsEndsItsRequestAlone) {
  const auto requests = SixRequests();
  const std::unique_ptr<Engine> engine = MakeEngine();
  Told told, other;
  Sink throws = told.sink();
  throws.on_token = [](const NewToken&) -> bool { throw std::runtime_error("no more"); };
  Must(engine->Submit(requests[1], throws));
  throws.on_done = [](int64_t, const Completion&) { throw std::runtime_error("nor this"); };
  Must(engine->Submit(requests[2], throws));
  Must(engine->Submit(requests[3], other.sink()));
  while (engine->Step().tokens > 0) {
  }
  EXPECT_EQ(told.done.at(0).finish, FinishReason::kFailed);
  EXPECT_THAT(std::string(told.done[0].error.message()), HasSubstr("sink: threw \"no more\""));
  EXPECT_EQ(other.done.at(0).tokens, OneByOne({requests[3]}, 0)[0]);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
}

// It is in no step yet, and must be in none.
TEST(EngineSteps, OneThatComesAndLeavesWhileAStepRunsIsCancelled) {
  Engine* runs = nullptr;
  bool came = false;
  std::optional<Completion> left;
  EngineOptions options;
  options.on_step = [&](const EngineStep&) {
    if (std::exchange(came, true)) return absl::OkStatus();
    const auto id = runs->Submit(
        {.prompt = {1, 2, 3}, .max_new_tokens = 5},
        {.on_done = [&](int64_t, Completion completion) { left = std::move(completion); }});
    runs->Cancel(Must(id));
    runs->Cancel(Must(id) + 1);  // nobody yet
    return absl::OkStatus();
  };
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  runs = engine.get();
  EXPECT_EQ(Tokens(*engine, {SixRequests()[0]})[0].size(), 15);
  engine->Step();
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->finish, FinishReason::kCancelled);
  EXPECT_TRUE(left->tokens.empty());
  EXPECT_EQ(Tokens(*engine, {SixRequests()[0]})[0].size(), 15);
}

TEST(EngineSteps, OtherThreadsSubmitAndCancel) {
  const auto requests = SixRequests();
  const auto alone = OneByOne(requests, 0);
  const std::unique_ptr<Engine> engine = MakeEngine({.cache_tokens = 80});
  constexpr int kThreads = 8, kEach = 20;
  std::atomic<int> done = 0, wrong = 0;
  std::latch begin(kThreads);  // else each would be done before the next is there
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      begin.arrive_and_wait();
      for (int i = 0; i < kEach; ++i) {
        const size_t which = (t + i) % requests.size();
        const bool cancels = i % 5 == 0;
        const auto id = engine->Submit(
            requests[which], {.on_done = [&, which, cancels](int64_t, const Completion& made) {
              const bool ended = cancels && made.finish == FinishReason::kCancelled;
              if (!ended && made.tokens != alone[which]) ++wrong;
              ++done;
            }});
        if (!id.ok()) ++wrong;
        std::this_thread::yield();
        if (cancels) engine->Cancel(*id);
      }
    });
  }
  while (done < kThreads * kEach) engine->Step();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
  EXPECT_TRUE(engine->cache().CheckAccounts().ok()) << engine->cache().CheckAccounts();
}

// The decoder with a token behind which logits are no numbers.
Model PoisonedDecoder(int64_t token) {
  Model model = TinyDecoder();
  Graph& graph = *model.graph;
  const int64_t words = graph.FindValue("table")->initializer()->dims()[0];
  std::vector<float> numbers(words, 0.0f);
  numbers[token] = std::numeric_limits<float>::quiet_NaN();
  Value* poison = graph.AddInitializer("poison", Tensor::Of<float>({words, 1}, numbers));
  Node* last = graph.FindValue("logits")->producer();
  GraphBuilder builder(graph, last, "poisoned");
  Value* bias = builder.Add("Gather", {poison, graph.FindValue("input_ids")});
  last->SetInput(0, builder.Add("Add", {last->input(0), bias}));
  return model;
}

TEST(Engine, LogitsThatAreNoNumbersEndTheirRequestAlone) {
  constexpr int64_t kPoison = 22;
  std::vector<Request> requests(4);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int64_t t = 0; t < 9; ++t)
      requests[i].prompt.push_back((5 * t + static_cast<int64_t>(i)) % 20);
    requests[i].max_new_tokens = 12;
  }
  requests[1].prompt.back() = kPoison;
  requests[2].samples = 2;
  requests[2].prompt.back() = kPoison;
  const EngineOptions options{.block_size = 4, .device = TestDevice()};
  const auto engine = Must(Engine::Create(PoisonedDecoder(kPoison), options));
  const auto completions = Must(engine->Generate(requests));
  ASSERT_EQ(completions.size(), 5u);
  for (const int failed : {1, 2, 3}) {
    SCOPED_TRACE(failed);
    const Completion& completion = completions[failed];
    EXPECT_EQ(completion.finish, FinishReason::kFailed);
    EXPECT_TRUE(completion.tokens.empty());
    EXPECT_EQ(completion.error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(StdView(completion.error.message())),
                HasSubstr("new token 0: logits: expected numbers, got NaN"));
  }
  EXPECT_EQ(FirstError(completions), ErrorOf(completions[1]));
  EXPECT_THAT(std::string(FirstError(completions).message()),
              HasSubstr("request 1: new token 0: "));
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
  // The others are what they are alone.
  const std::vector<std::vector<int64_t>> alone =
      OneByOne({requests[0], requests[3]}, /*window=*/0);
  EXPECT_EQ(completions[0].tokens, alone[0]);
  EXPECT_EQ(completions[4].tokens, alone[1]);
}

}  // namespace
}  // namespace pagefuse
