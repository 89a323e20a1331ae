// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/drafts.h"

#include <random>
#include <vector>

#include "fake_device.h"
#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Drafts, AreWhatStoodBehindTheSameTokensLast) {
  Drafts drafts;
  std::vector<int64_t> text = {1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_THAT(drafts.Propose(text, 8), ElementsAre(4, 5, 1, 2));  // four at first
  EXPECT_THAT(drafts.Propose(text, 2), ElementsAre(4, 5));
  EXPECT_THAT(drafts.Propose(text, 0), IsEmpty());
  text.insert(text.end(), {6, 7, 1, 2, 3});
  EXPECT_THAT(drafts.Propose(text, 8), ElementsAre(6, 7, 1, 2));
  text.push_back(9);
  EXPECT_THAT(drafts.Propose(text, 8), IsEmpty());
}

TEST(Drafts, AreNoneOfShortTexts) {
  Drafts drafts;
  EXPECT_THAT(drafts.Propose({}, 8), IsEmpty());
  const std::vector<int64_t> text = {1, 1, 1, 1};
  EXPECT_THAT(drafts.Propose(std::span(text).first(3), 8), IsEmpty());
  EXPECT_THAT(drafts.Propose(text, 8), ElementsAre(1));
}

TEST(Drafts, AreMoreWhereTheyWereRightAndPauseWhereNot) {
  Drafts drafts;
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 60; ++i) text.push_back(i % 20);
  EXPECT_EQ(drafts.Propose(text, 8).size(), 4u);
  drafts.Tell(4, 4);
  EXPECT_EQ(drafts.Propose(text, 8).size(), 8u);
  drafts.Tell(8, 3);
  EXPECT_EQ(drafts.Propose(text, 8).size(), 3u);
  for (const int pause : {1, 2, 4, 8, 16, 32, 32}) {
    drafts.Tell(1, 0);
    for (int i = 0; i < pause; ++i) EXPECT_THAT(drafts.Propose(text, 8), IsEmpty()) << pause;
    EXPECT_EQ(drafts.Propose(text, 8).size(), 1u);
  }
}

// Two hundred requests of all kinds of sampling: tokens and logprobs are the same with and without.
TEST(DraftsInEngine, ChangeNoTokenAndNoLogprob) {
  EngineOptions options{.block_size = 4, .prefix_reuse = PrefixReuse::kOff};
  options.device = TestDevice();
  for (const int64_t window : {0, 8}) {
    std::mt19937 random(19);
    options.drafts = true;
    const auto with = Must(Engine::Create(TinyDecoder(window), options));
    options.drafts = false;
    const auto without = Must(Engine::Create(TinyDecoder(window), options));
    for (int i = 0; i < 100; ++i) {
      Request request;
      const auto period = static_cast<int64_t>(1 + random() % 9);
      for (int64_t t = 0; t < 30; ++t) {
        request.prompt.push_back((3 * (t % period) + i) % kTinyVocabulary);
      }
      request.max_new_tokens = 60;
      request.samples = 1 + i % 2;
      request.sampling.seed = i;
      request.sampling.logprobs = 3;
      if (i % 2 == 1) request.sampling.temperature = 0.3f + 0.1f * static_cast<float>(i % 7);
      if (i % 5 == 1) request.sampling.top_k = 4;
      if (i % 5 == 2) request.sampling.top_p = 0.8f;
      if (i % 5 == 3) request.sampling.repetition_penalty = 1.1f;
      if (i % 10 == 4) request.stop_tokens = {5};
      if (i % 10 == 9) request.forced = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2};
      const auto a = Must(with->Generate({request}));
      const auto b = Must(without->Generate({request}));
      for (size_t sample = 0; sample < a.size(); ++sample) {
        ASSERT_EQ(a[sample].tokens, b[sample].tokens) << i;
        ASSERT_EQ(a[sample].finish, b[sample].finish) << i;
        ASSERT_EQ(a[sample].logprobs.size(), b[sample].logprobs.size());
        for (size_t t = 0; t < a[sample].logprobs.size(); ++t) {
          ASSERT_EQ(a[sample].logprobs[t].logprob, b[sample].logprobs[t].logprob) << i;
        }
      }
    }
    EXPECT_GT(with->stats().drafts_right, 500);
    EXPECT_GT(with->stats().draft_tokens, with->stats().drafts_right);
    EXPECT_EQ(with->stats().decode_tokens, without->stats().decode_tokens);
    EXPECT_LT(with->stats().steps, without->stats().steps);
    EXPECT_EQ(without->stats().draft_tokens, 0);
    EXPECT_EQ(with->cache().pool().num_held(), 0);
  }
}

}  // namespace
}  // namespace pagefuse
