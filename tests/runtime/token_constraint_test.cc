// SPDX-License-Identifier: Apache-2.0
// Answers that are bound: by the sampler, by the engine with drafts and samples, and as the graph was exported.
#include "pagefuse/runtime/token_constraint.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tiny_decoder.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"
#include "pagefuse/runtime/plain_queue.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Place i of an answer has one of the tokens of `places[i % size]`; `length` tokens in all.
class ByPlace final : public TokenConstraint {
 public:
  ByPlace(std::vector<std::set<int64_t>> places, size_t length)
      : places_(std::move(places)), length_(length) {}
  absl::StatusOr<std::span<const uint64_t>> Allowed() override {
    words_.assign(1, 0);
    for (const int64_t token : places_[count_ % places_.size()]) words_[0] |= uint64_t{1} << token;
    return std::span<const uint64_t>(words_);
  }
  void Accept(int64_t token) override {
    EXPECT_TRUE(places_[count_ % places_.size()].contains(token)) << token;
    ++count_;
  }
  bool Ended() const override { return count_ == length_; }

 private:
  std::vector<std::set<int64_t>> places_;
  size_t length_, count_ = 0;
  std::vector<uint64_t> words_;
};

TokenConstraintMaker Places(std::vector<std::set<int64_t>> places, size_t length) {
  return [=] { return std::make_unique<ByPlace>(places, length); };
}

TEST(TokenConstraint, LeavesTheSamplerWhatIsAllowed) {
  const std::vector<float> logits = {5, 4, 3, 2, 1, 9};
  const std::vector<uint64_t> allowed = {0b011100};
  EXPECT_EQ(Must(Sampler({}, 0, 0).Next(logits, {}, 0, {.allowed = allowed})).token, 2);
  SamplingOptions options{.temperature = 2, .logprobs = 1};
  std::set<int64_t> drawn;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const SampledToken token =
        Must(Sampler(options, seed, 0).Next(logits, {}, 0, {.allowed = allowed}));
    drawn.insert(token.token);
    // Logprobs are those of the model.
    EXPECT_EQ(token.logprobs->top[0].first, 5);
  }
  EXPECT_THAT(drawn, ElementsAre(2, 3, 4));
}

TEST(TokenConstraint, TokensBehindTheLastWordMayNotCome) {
  std::vector<float> logits(130, 0);
  logits[129] = 9;
  logits[70] = 8;
  const std::vector<uint64_t> allowed = {0, ~uint64_t{0}};
  EXPECT_EQ(Must(Sampler({}, 0, 0).Next(logits, {}, 0, {.allowed = allowed})).token, 70);
}

// Full words, empty ones, and those between; a last one that is cut, or is not there.
TEST(TokenConstraint, TheLikeliestThatIsAllowedComes) {
  std::mt19937_64 random(3);
  const uint64_t kinds[] = {
      0, ~uint64_t{0}, 1, ~uint64_t{1}, uint64_t{1} << 63, 0x5555555555555555u};
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(300 + random() % 64);
    for (float& logit : logits) logit = static_cast<float>(random() % 100000);
    std::vector<uint64_t> words(logits.size() / 64 + random() % 2);
    for (uint64_t& word : words) word = random() % 8 < 6 ? kinds[random() % 6] : random();
    words[0] |= 2;
    int64_t best = 1;
    for (size_t i = 0; i < std::min(logits.size(), 64 * words.size()); ++i) {
      const bool may = words[i / 64] >> i % 64 & 1;
      if (may && logits[i] > logits[best]) best = static_cast<int64_t>(i);
    }
    const auto came = Must(Sampler({}, 0, 0).Next(logits, {}, 0, {.allowed = words}));
    EXPECT_EQ(logits[came.token], logits[best]) << round;
    EXPECT_TRUE(words.at(came.token / 64) >> came.token % 64 & 1) << round;
  }
}

TEST(TokenConstraint, NoTokenThatMayComeIsAnError) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, never};
  const std::vector<uint64_t> allowed = {0b10};
  const auto sampled = Sampler({}, 0, 0).Next(logits, {}, 0, {.allowed = allowed});
  EXPECT_EQ(sampled.status().code(), absl::StatusCode::kFailedPrecondition);
}

Request Bound(std::vector<int64_t> prompt, TokenConstraintMaker constraint) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = 12;
  request.constraint = std::move(constraint);
  return request;
}

TEST(TokenConstraint, EndsAnAnswerAndLeavesOthersAlone) {
  const std::vector<Request> requests = {Bound({1, 2, 3}, Places({{4, 5}, {6}}, 5)),
                                         Bound({1, 2, 3}, nullptr)};
  auto engine = Must(Engine::Create(TinyDecoder(), {.block_size = 4}));
  const std::vector<Completion> both = Must(engine->Generate(requests));
  EXPECT_EQ(both[0].tokens.size(), 5u);
  EXPECT_EQ(both[0].finish, FinishReason::kStop);
  EXPECT_EQ(both[0].tokens[1], 6);
  EXPECT_EQ(both[0].tokens[3], 6);
  const std::vector<Completion> alone = Must(engine->Generate({requests[1]}));
  EXPECT_EQ(both[1].tokens, alone[0].tokens);
  EXPECT_EQ(both[1].tokens.size(), 12u);
}

// The answer repeats itself, so that there are drafts, of which some are not allowed.
TEST(TokenConstraint, DraftsAndSamplesChangeNothing) {
  Request request =
      Bound({4, 6, 5, 6, 4, 6, 5, 6, 4, 6}, Places({{4, 5}, {6}, {4, 5, 7}, {6, 8}}, 60));
  request.max_new_tokens = 60;
  request.samples = 3;
  request.sampling = {.temperature = 0.7, .seed = 11};
  std::vector<std::vector<std::vector<int64_t>>> tokens;
  for (const bool drafts : {false, true}) {
    auto engine = Must(Engine::Create(TinyDecoder(), {.block_size = 4, .drafts = drafts}));
    tokens.emplace_back();
    for (const Completion& completion : Must(engine->Generate({request}))) {
      EXPECT_TRUE(completion.error.ok()) << completion.error;
      tokens.back().push_back(completion.tokens);
    }
    EXPECT_EQ(engine->stats().draft_tokens > 0, drafts);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST(TokenConstraint, AnErrorEndsOneCompletion) {
  class Refuses final : public TokenConstraint {
   public:
    absl::StatusOr<std::span<const uint64_t>> Allowed() override {
      return absl::FailedPreconditionError("nothing goes on");
    }
    void Accept(int64_t) override {}
    bool Ended() const override { return false; }
  };
  const auto refuses = [] { return std::make_unique<Refuses>(); };
  auto engine = Must(Engine::Create(TinyDecoder(), {.block_size = 4}));
  const auto made = Must(engine->Generate({Bound({1, 2}, refuses), Bound({1, 2}, nullptr)}));
  EXPECT_EQ(made[0].finish, FinishReason::kFailed);
  EXPECT_THAT(std::string(made[0].error.message()), HasSubstr("new token 0: nothing goes on"));
  EXPECT_EQ(made[1].tokens.size(), 12u);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
}

// What a sink was told.
struct Told {
  int starts = 0;
  std::vector<int64_t> tokens;
  std::vector<Completion> done;

  Sink MakeSink(std::function<bool()> goes_on = nullptr) {
    return {.on_start = [this] { ++starts; },
            .on_token =
                [this, goes_on](const NewToken& token) {
                  tokens.push_back(token.token);
                  return !goes_on || goes_on();
                },
            .on_done = [this](int64_t,
                              Completion completion) { done.push_back(std::move(completion)); }};
  }
};

TEST(PlainQueue, RunsOneRequestAStepAsItIsAlone) {
  auto decoder = Must(PlainDecoder::Create(TinyDecoder(), {}));
  PlainQueue queue(decoder.get());
  Told first, second;
  Must(queue.Submit(Bound({1, 2, 3}, nullptr), first.MakeSink()));
  Must(queue.Submit(Bound({5, 6}, Places({{4}}, 3)), second.MakeSink()));
  const StepReport report = queue.Step();
  EXPECT_EQ(report.waiting, 1);
  EXPECT_GT(report.tokens, 0);
  ASSERT_EQ(first.done.size(), 1u);
  EXPECT_EQ(first.starts, 1);
  EXPECT_EQ(second.starts, 0);
  EXPECT_EQ(queue.Step().waiting, 0);
  EXPECT_THAT(second.tokens, ElementsAre(4, 4, 4));
  EXPECT_EQ(second.done[0].finish, FinishReason::kStop);
  EXPECT_EQ(queue.Step().tokens, 0);
  auto alone = Must(PlainDecoder::Create(TinyDecoder(), {}));
  EXPECT_EQ(first.done[0].tokens, Must(alone->Generate({Bound({1, 2, 3}, nullptr)}))[0].tokens);
}

TEST(PlainQueue, CancelsWhatWaitsAndWhatRuns) {
  auto decoder = Must(PlainDecoder::Create(TinyDecoder(), {}));
  PlainQueue queue(decoder.get());
  Told runs, waits;
  RequestId id = -1;
  const auto cancels = [&] {
    if (runs.tokens.size() == 3) queue.Cancel(id);
    return true;
  };
  id = Must(queue.Submit(Bound({1, 2, 3}, nullptr), runs.MakeSink(cancels)));
  const RequestId waiting = Must(queue.Submit(Bound({1}, nullptr), waits.MakeSink()));
  queue.Cancel(waiting);
  queue.Step();  // what was cancelled is told of first
  ASSERT_EQ(waits.done.size(), 1u);
  EXPECT_EQ(waits.done[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(waits.starts, 0);
  queue.Step();
  ASSERT_EQ(runs.done.size(), 1u);
  EXPECT_EQ(runs.done[0].finish, FinishReason::kCancelled);
  EXPECT_LE(runs.tokens.size(), 4u);
  EXPECT_FALSE(queue.Submit(Bound({}, nullptr), runs.MakeSink()).ok());
}

TEST(EngineFigures, TellOfWhatWasComputedAgainAndLost) {
  // Room for little more than one of them.
  auto engine = Must(Engine::Create(
      TinyDecoder(), {.block_size = 4, .cache_tokens = 48, .prefix_reuse = PrefixReuse::kOff}));
  std::vector<Request> requests;
  for (int64_t i = 0; i < 3; ++i) {
    requests.push_back(Bound({i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7, i + 8}, nullptr));
    requests.back().max_new_tokens = 30;
  }
  for (const Completion& completion : Must(engine->Generate(requests))) {
    EXPECT_EQ(completion.tokens.size(), 30u);
  }
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.recomputed_tokens, 0);
  const int64_t needed = 3 * (8 + 29);
  EXPECT_EQ(stats.prefill_tokens + stats.decode_tokens - needed, stats.recomputed_tokens);
}

}  // namespace
}  // namespace pagefuse
