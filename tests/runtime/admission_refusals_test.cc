// SPDX-License-Identifier: Apache-2.0
// A request that cannot run ends before any step, alone, and says what was wrong with it.
#include <cmath>
#include <functional>
#include <limits>

#include "fake_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tiny_decoder.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/decoder.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCacheTokens = 64;

EngineOptions Options(int* steps) {
  return {.block_size = 4,
          .max_tokens_per_step = 16,
          .cache_tokens = kCacheTokens,
          .device = TestDevice(),
          .on_step = [steps](const EngineStep&) { return ++*steps, absl::OkStatus(); }};
}

Request Good(int64_t i) {
  Request request;
  for (int64_t t = 0; t < 3 + i % 9; ++t) request.prompt.push_back((5 * t + i) % kTinyVocabulary);
  request.max_new_tokens = 4 + i % 5;
  request.samples = 1 + i % 2;
  request.sampling.temperature = i % 3 == 0 ? 1.5 : 0;
  request.sampling.seed = 7 + i;
  return request;
}

struct Bad {
  std::string error;
  std::function<void(Request&)> change;
};

std::vector<Bad> BadRequests() {
  return {
      {"prompt: expected one token at least, got none", [](auto& r) { r.prompt.clear(); }},
      {"prompt: token 23 is outside the vocabulary: expected 0 to 22",
       [](auto& r) { r.prompt[1] = kTinyVocabulary; }},
      {"prompt: token -5 is outside the vocabulary: expected 0 to 22",
       [](auto& r) { r.prompt.back() = -5; }},
      {"forced: token 99 is outside the vocabulary: expected 0 to 22",
       [](auto& r) {
         r.forced = {1, 99};
       }},
      {"max_new_tokens: expected 0 to 2147483643 after a prompt of 4, got -1",
       [](auto& r) { r.max_new_tokens = -1; }},
      {"max_new_tokens: expected 0 to 2147483643 after a prompt of 4, got 9223372036854775807",
       [](auto& r) { r.max_new_tokens = std::numeric_limits<int64_t>::max(); }},
      {"prompt and max_new_tokens: needs 17 pages of 256 bytes at 65 tokens, the cache has 16: at "
       "most 64 tokens",
       [](auto& r) { r.max_new_tokens = 62; }},
      {"prompt and max_new_tokens: needs 250 pages of 256 bytes at 1000 tokens, the cache has 16: "
       "at most 64 tokens",
       [](auto& r) { r.prompt.assign(1000, 3), r.max_new_tokens = 1; }},
      {"samples: expected 1 to 16, got 0", [](auto& r) { r.samples = 0; }},
      {"samples: expected 1 to 16, got 1000000000", [](auto& r) { r.samples = 1000000000; }},
      {"temperature: expected 0 to 100, got nan", [](auto& r) { r.sampling.temperature = NAN; }},
      {"top_p: expected more than 0, at most 1, got 2", [](auto& r) { r.sampling.top_p = 2; }},
      {"top_k: expected 0 or more, got -3", [](auto& r) { r.sampling.top_k = -3; }},
      {"min_p: expected 0 to 1, got -1", [](auto& r) { r.sampling.min_p = -1; }},
      {"repetition_penalty: expected more than 0, at most 10, got 0",
       [](auto& r) { r.sampling.repetition_penalty = 0; }},
      {"logprobs: expected 0 to 20, got 21", [](auto& r) { r.sampling.logprobs = 21; }},
      {"min_tokens: expected 0 or more, got -2", [](auto& r) { r.sampling.min_tokens = -2; }},
      {"bias of token 3: expected -100 to 100, got 101", [](auto& r) { r.sampling.bias[3] = 101; }},
      {"a limit of the caller",
       [](auto& r) { r.refused = absl::InvalidArgumentError("a limit of the caller"); }}};
}

TEST(AdmissionRefusals, LeaveTwentyOthersAsTheyAre) {
  int steps = 0;
  const auto engine = Must(Engine::Create(TinyDecoder(), Options(&steps)));
  std::vector<Request> good;
  for (int64_t i = 0; i < 20; ++i) good.push_back(Good(i));
  const auto expected = Must(engine->Generate(good));
  const int steps_of_good = steps;
  size_t before = 0, round = 0;  // requests and completions in front of the bad one
  for (const Bad& bad : BadRequests()) {
    SCOPED_TRACE(bad.error);
    const size_t place = 7 * round++ % 21;
    std::vector<Request> requests = good;
    Request request = {.prompt = {1, 2, 3, 4}, .max_new_tokens = 5};
    bad.change(request);
    requests.insert(requests.begin() + static_cast<std::ptrdiff_t>(place), request);
    before = 0;
    for (size_t i = 0; i < place; ++i) before += good[i].samples;
    steps = 0;
    const auto completions = Must(engine->Generate(requests));
    ASSERT_EQ(completions.size(), expected.size() + 1);
    EXPECT_EQ(StdView(completions[before].error.message()), bad.error);
    EXPECT_EQ(completions[before].finish, FinishReason::kRefused);
    EXPECT_TRUE(completions[before].tokens.empty());
    EXPECT_EQ(StdView(FirstError(completions).message()),
              StrCat("request ", place, ": ", bad.error));
    for (size_t i = 0; i < expected.size(); ++i) {
      const Completion& completion = completions[i < before ? i : i + 1];
      EXPECT_TRUE(completion.error.ok()) << completion.error;
      EXPECT_EQ(completion.tokens, expected[i].tokens);
    }
    EXPECT_EQ(steps, steps_of_good);
    EXPECT_EQ(engine->cache().pool().num_held(), 0);
  }
}

TEST(AdmissionRefusals, TakeNoStepAlone) {
  int steps = 0;
  const auto engine = Must(Engine::Create(TinyDecoder(), Options(&steps)));
  for (const Bad& bad : BadRequests()) {
    SCOPED_TRACE(bad.error);
    Request request = {.prompt = {1, 2, 3, 4}, .max_new_tokens = 5};
    bad.change(request);
    const auto completions = Must(engine->Generate({request}));
    EXPECT_EQ(completions.size(), 1u);
    EXPECT_EQ(StdView(completions[0].error.message()), bad.error);
    EXPECT_EQ(StdView(engine->Submit(request, {}).status().message()), bad.error);
    EXPECT_EQ(engine->Step().tokens, 0);
    EXPECT_EQ(steps, 0);
  }
}

// What the cache could hold of one text is what it can.
TEST(AdmissionRefusals, TakeWhatJustFits) {
  int steps = 0;
  const auto engine = Must(Engine::Create(TinyDecoder(), Options(&steps)));
  const auto completions = Must(engine->Generate({{.prompt = {1, 2, 3, 4}, .max_new_tokens = 61},
                                                  {.prompt = {1, 2, 3, 4}, .max_new_tokens = 62}}));
  EXPECT_EQ(completions[0].tokens.size(), 61u);
  EXPECT_EQ(completions[1].finish, FinishReason::kRefused);
}

// Several reasons, each of its own request, and none of more memory than there is.
TEST(AdmissionRefusals, AreToldForEachOfAGraphThatIsAskedForTooMuch) {
  const auto decoder = Must(Decoder::Create([]() -> absl::StatusOr<Model> { return TinyDecoder(); },
                                            {.session = {.max_memory_bytes = 1 << 20}}));
  const auto completions = Must(decoder->Generate({{.prompt = {}},
                                                   {.prompt = {1, 2}, .max_new_tokens = 3},
                                                   {.prompt = {1}, .max_new_tokens = 2000000000},
                                                   {.prompt = {40}}}));
  EXPECT_THAT(std::string(ErrorOf(completions[0]).message()), HasSubstr("request 0: prompt: "));
  EXPECT_EQ(completions[1].tokens.size(), 3u);
  EXPECT_EQ(completions[2].error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(completions[2].error.message()), HasSubstr(" tokens"));
  EXPECT_THAT(std::string(ErrorOf(completions[3]).message()), HasSubstr("request 3: prompt: "));
}

}  // namespace
}  // namespace pagefuse
