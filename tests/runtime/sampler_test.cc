// SPDX-License-Identifier: Apache-2.0
// The sampler against plain references in double, its distribution, and its random numbers.
#include "pagefuse/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "simd_targets.h"
#include "tiny_decoder.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/random.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

TEST(SamplerRandom, PhiloxGivesThePublishedNumbers) {
  EXPECT_THAT(Philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

// Pearson's r of two series.
double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sa += a[i];
    sb += b[i];
    saa += a[i] * a[i];
    sbb += b[i] * b[i];
    sab += a[i] * b[i];
  }
  return (sab - sa * sb / n) / std::sqrt((saa - sa * sa / n) * (sbb - sb * sb / n));
}

double UniformAt(uint64_t seed, uint32_t sample, uint64_t position) {
  return std::ldexp(static_cast<double>(RandomBitsAt(seed, sample, position)), -64);
}

TEST(SamplerRandom, NeighboursAreUncorrelated) {
  constexpr int kDraws = 1'000'000;
  std::vector<double> base(kDraws), seed(kDraws), sample(kDraws), position(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    base[i] = UniformAt(1234, 0, i);
    seed[i] = UniformAt(1235, 0, i);
    sample[i] = UniformAt(1234, 1, i);
    position[i] = UniformAt(1234, 0, i + 1);
    ASSERT_TRUE(base[i] >= 0 && base[i] < 1);
  }
  EXPECT_LT(std::abs(Correlation(base, seed)), 0.005);
  EXPECT_LT(std::abs(Correlation(base, sample)), 0.005);
  EXPECT_LT(std::abs(Correlation(base, position)), 0.005);
}

// All stages as sentences of the definition, over the whole row each time.
struct Reference {
  const SamplingOptions& options;
  std::vector<int64_t> tokens;
  size_t prompt;

  std::vector<double> Adjusted(const std::vector<float>& logits) const {
    std::vector<double> row(logits.begin(), logits.end());
    for (const auto& [token, bias] : options.bias) row[token] += bias;
    for (size_t v = 0; v < row.size(); ++v) {
      const auto id = static_cast<int64_t>(v);
      const auto output = std::count(tokens.begin() + prompt, tokens.end(), id);
      const bool seen = std::count(tokens.begin(), tokens.end(), id) > 0;
      if (seen) {
        row[v] =
            row[v] > 0 ? row[v] / options.repetition_penalty : row[v] * options.repetition_penalty;
      }
      row[v] -= options.frequency_penalty * static_cast<double>(output);
      if (output > 0) row[v] -= options.presence_penalty;
      row[v] = static_cast<float>(row[v]);
    }
    return row;
  }

  // The tokens that may come, with their probabilities; the others have 0.
  std::vector<double> Probabilities(const std::vector<float>& logits) const {
    std::vector<double> row = Adjusted(logits);
    for (double& logit : row) logit /= options.temperature;
    const double largest = *std::max_element(row.begin(), row.end());
    std::vector<bool> kept(row.size());
    for (size_t v = 0; v < row.size(); ++v) {
      kept[v] = options.min_p == 0 || row[v] >= largest + std::log(options.min_p);
    }
    if (options.top_k > 0) {
      std::vector<double> sorted = row;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const double kth = sorted[std::min<size_t>(options.top_k, sorted.size()) - 1];
      for (size_t v = 0; v < row.size(); ++v) kept[v] = kept[v] && row[v] >= kth;
    }
    std::vector<double> weights(row.size());
    for (size_t v = 0; v < row.size(); ++v) weights[v] = kept[v] ? std::exp(row[v] - largest) : 0;
    double sum = 0;
    for (double weight : weights) sum += weight;
    std::vector<size_t> order(row.size());
    for (size_t v = 0; v < order.size(); ++v) order[v] = v;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return row[a] > row[b]; });
    double reached = 0;
    for (size_t v : order) {
      if (options.top_p < 1 && reached >= options.top_p * sum) weights[v] = 0;
      reached += weights[v];
    }
    double left = 0;
    for (double weight : weights) left += weight;
    for (double& weight : weights) weight /= left;
    return weights;
  }

  int64_t Draw(const std::vector<float>& logits, double uniform) const {
    if (options.temperature == 0) {
      const std::vector<double> row = Adjusted(logits);
      return std::max_element(row.begin(), row.end()) - row.begin();
    }
    const std::vector<double> probabilities = Probabilities(logits);
    double reached = 0;
    for (size_t v = 0; v < probabilities.size(); ++v) {
      reached += probabilities[v];
      if (reached > uniform) return static_cast<int64_t>(v);
    }
    return -1;
  }
};

SamplingOptions RandomOptions(std::mt19937& random) {
  SamplingOptions options;
  const auto one_in = [&](int n) { return random() % n == 0; };
  const auto uniform = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  options.temperature = one_in(8) ? 0 : uniform(0.1, 3);
  if (one_in(2)) options.top_k = 1 + random() % 400;
  if (one_in(2)) options.top_p = uniform(0.05, 1);
  if (one_in(2)) options.min_p = uniform(0.001, 0.5);
  if (one_in(2)) options.repetition_penalty = uniform(0.5, 2);
  if (one_in(2)) options.frequency_penalty = uniform(-1, 2);
  if (one_in(2)) options.presence_penalty = uniform(-1, 2);
  for (int i = 0; one_in(2) && i < 5; ++i) options.bias[random() % 50] = uniform(-5, 5);
  return options;
}

std::vector<float> RandomRow(std::mt19937& random, size_t size) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(size);
  const bool coarse = random() % 4 == 0;  // many equal logits
  for (float& logit : row) logit = coarse ? std::round(normal(random)) : normal(random);
  if (random() % 8 == 0) row[random() % size] = -std::numeric_limits<float>::infinity();
  return row;
}

TEST(Sampler, StagesEqualThePlainReference) {
  std::mt19937 random(1);
  for (int round = 0; round < 10'000; ++round) {
    const SamplingOptions options = RandomOptions(random);
    const std::vector<float> logits =
        RandomRow(random, round % 50 == 0 ? 20'000 : 50 + random() % 900);
    Reference reference{options, {}, random() % 5};
    const size_t length = reference.prompt + random() % 8;
    while (reference.tokens.size() < length) reference.tokens.push_back(random() % 50);
    Sampler sampler(options, round, 3);
    const auto sampled = Must(sampler.Next(logits, reference.tokens, reference.prompt, {}));
    ASSERT_EQ(sampled.token, reference.Draw(logits, UniformAt(round, 3, length))) << round;
  }
}

TEST(Sampler, ChoosesTheSameOnEveryTarget) {
  std::vector<SampledToken> expected;
  testing::ForEachSimdTarget([&] {
    std::mt19937 random(3);
    for (size_t round = 0; round < 600; ++round) {
      SamplingOptions options = RandomOptions(random);
      options.logprobs = 5;
      const std::vector<float> logits = RandomRow(random, 50 + random() % 3000);
      const std::vector<int64_t> tokens = {1, 7};
      const auto sampled = Must(Sampler(options, round, 0).Next(logits, tokens, 1, {}));
      if (expected.size() == round) expected.push_back(sampled);
      ASSERT_EQ(sampled.token, expected[round].token);
      ASSERT_EQ(sampled.logprobs->logprob, expected[round].logprobs->logprob);
      ASSERT_EQ(sampled.logprobs->top, expected[round].logprobs->top);
    }
  });
}

// Chi-square of draws against probabilities; cells that expect less than five are one.
double ChiSquare(const std::vector<int64_t>& counts, const std::vector<double>& probabilities,
                 int& freedom) {
  int64_t draws = 0, rare_count = 0;
  for (int64_t count : counts) draws += count;
  double sum = 0, rare = 0;
  freedom = -1;
  const auto add = [&](double observed, double expected) {
    sum += (observed - expected) * (observed - expected) / expected;
    ++freedom;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(draws);
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0);
    }
    if (expected < 5) {
      rare += expected;
      rare_count += counts[i];
    } else {
      add(static_cast<double>(counts[i]), expected);
    }
  }
  if (rare >= 5) add(static_cast<double>(rare_count), rare);
  return sum;
}

// Wilson and Hilferty: about standard normal.
double NormalOfChiSquare(double sum, int freedom) {
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(sum / freedom) - (1 - spread)) / std::sqrt(spread);
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheReference) {
  std::mt19937 random(7);
  constexpr int kDraws = 25'000;  // of each of 40 settings: 10^6 in all
  for (int setting = 0; setting < 40; ++setting) {
    SamplingOptions options = RandomOptions(random);
    options.temperature = std::max(options.temperature, 0.3);
    options.frequency_penalty = options.presence_penalty = 0;
    const std::vector<float> logits = RandomRow(random, 60);
    Reference reference{options, {1, 2, 3}, 3};
    Sampler sampler(options, setting, 0);
    std::vector<int64_t> counts(60), tokens = reference.tokens;
    while (tokens.size() < 3 + kDraws) {
      // The position alone differs: what was drawn is not seen by these options but for repetition.
      const auto sampled = Must(sampler.Next(logits, tokens, tokens.size(), {}));
      ++counts[sampled.token];
      tokens.push_back(1);
    }
    int freedom = 0;
    const double sum = ChiSquare(counts, reference.Probabilities(logits), freedom);
    if (freedom > 0) {
      EXPECT_LT(NormalOfChiSquare(sum, freedom), 3.72) << setting;  // p > 1e-4
    }
  }
}

TEST(Sampler, TellsLogprobsOfTheLogitsAsTheyCame) {
  SamplingOptions options;
  options.logprobs = 2;
  options.bias = {{3, 10}};
  Sampler sampler(options, 0, 0);
  const std::vector<float> logits = {1, 2, 0, -1};
  const auto sampled = Must(sampler.Next(logits, {}, 0, {}));
  EXPECT_EQ(sampled.token, 3);
  const double log_sum = std::log(std::exp(1) + std::exp(2) + 1 + std::exp(-1));
  EXPECT_NEAR(sampled.logprobs->logprob, -1 - log_sum, 1e-12);
  ASSERT_EQ(sampled.logprobs->top.size(), 2u);
  EXPECT_EQ(sampled.logprobs->top[0].first, 1);
  EXPECT_NEAR(sampled.logprobs->top[1].second, 1 - log_sum, 1e-12);
}

TEST(Sampler, TakesTheFirstOfEqualLogitsAndNoForbiddenOne) {
  Sampler sampler({}, 0, 0);
  const std::vector<float> logits = {0, 5, 5, 1};
  const std::vector<int64_t> forbidden = {1, 9};
  EXPECT_EQ(sampler.Next(logits, {}, 0, {})->token, 1);
  EXPECT_EQ(sampler.Next(logits, {}, 0, {.forbidden = forbidden})->token, 2);
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto error = [](const std::vector<float>& logits) {
    return std::string(Sampler({}, 0, 0).Next(logits, {}, 0, {}).status().message());
  };
  EXPECT_EQ(error({1, NAN}), "logits: expected numbers, got NaN");
  EXPECT_EQ(error({1, kInfinity}), "logits: expected finite numbers, got infinity");
  EXPECT_EQ(error({-kInfinity}), "logits: expected a finite number, all are -infinity");
  EXPECT_EQ(error({}), "logits: expected at least one, got none");
}

TEST(Sampler, RefusesRowsWhoseWeightsHaveNoSum) {
  const std::vector<float> logits(kMostWeights + 1, 1);
  EXPECT_EQ(Must(Sampler({}, 0, 0).Next(logits, {}, 0, {})).token, 0);
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.logprobs = 0}}) {
    EXPECT_EQ(Sampler(options, 0, 0).Next(logits, {}, 0, {}).status().message(),
              "logits: expected 1048575 at most to draw or to tell logprobs, got 1048576");
  }
}

TEST(Sampler, RefusesOptionsByName) {
  const auto error = [](auto change) {
    SamplingOptions options;
    change(options);
    return std::string(CheckSampling(options).message());
  };
  EXPECT_EQ(error([](auto& o) { o.temperature = 101; }), "temperature: expected 0 to 100, got 101");
  EXPECT_EQ(error([](auto& o) { o.temperature = NAN; }), "temperature: expected 0 to 100, got nan");
  EXPECT_EQ(error([](auto& o) { o.top_k = -1; }), "top_k: expected 0 or more, got -1");
  EXPECT_EQ(error([](auto& o) { o.top_p = 0; }), "top_p: expected more than 0, at most 1, got 0");
  EXPECT_EQ(error([](auto& o) { o.min_p = 1.5; }), "min_p: expected 0 to 1, got 1.5");
  EXPECT_EQ(error([](auto& o) { o.repetition_penalty = 0; }),
            "repetition_penalty: expected more than 0, at most 10, got 0");
  EXPECT_EQ(error([](auto& o) { o.frequency_penalty = 3; }),
            "frequency_penalty: expected -2 to 2, got 3");
  EXPECT_EQ(error([](auto& o) { o.presence_penalty = -3; }),
            "presence_penalty: expected -2 to 2, got -3");
  EXPECT_EQ(error([](auto& o) { o.logprobs = 21; }), "logprobs: expected 0 to 20, got 21");
  EXPECT_EQ(error([](auto& o) { o.bias[-1] = 0; }), "bias: expected token ids, got -1");
  EXPECT_EQ(error([](auto& o) {
              for (int i = 0; i < 1025; ++i) o.bias[i] = 1;
            }),
            "bias: expected 1024 entries at most, got 1025");
}

// In the engine.

std::unique_ptr<Engine> MakeEngine(EngineOptions options = {}) {
  options.block_size = 4;
  return Must(Engine::Create(TinyDecoder(), options));
}

Request SampledRequest(int64_t first, int64_t samples) {
  Request request;
  for (int64_t t = 0; t < 5 + first; ++t)
    request.prompt.push_back((3 * t + first) % kTinyVocabulary);
  request.max_new_tokens = 12;
  request.samples = samples;
  request.sampling.temperature = 1.5;
  request.sampling.seed = 40 + first;
  return request;
}

std::vector<std::vector<int64_t>> TokensOf(Engine& engine, const std::vector<Request>& requests) {
  const auto completions = Must(engine.Generate(requests));
  EXPECT_EQ(engine.cache().pool().num_held(), 0);
  std::vector<std::vector<int64_t>> tokens;
  for (const Completion& completion : completions) tokens.push_back(completion.tokens);
  return tokens;
}

TEST(SamplerInEngine, GivesOneSeedTheSameTokensInAnyBatch) {
  const auto alone = MakeEngine();
  std::vector<std::vector<int64_t>> expected;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) {
    requests.push_back(SampledRequest(i, 1 + i % 3));
    for (auto& tokens : TokensOf(*alone, {requests.back()})) expected.push_back(std::move(tokens));
  }
  EXPECT_NE(expected[1], expected[2]);  // two samples of one request
  EXPECT_EQ(TokensOf(*MakeEngine(), requests), expected);
  EXPECT_EQ(TokensOf(*MakeEngine({.max_tokens_per_step = 7}), requests), expected);
  EXPECT_EQ(TokensOf(*MakeEngine({.max_sequences = 2}), requests), expected);
  // Samples that wait, and are preempted.
  EXPECT_EQ(TokensOf(*MakeEngine({.cache_tokens = 40}), requests), expected);
}

TEST(SamplerInEngine, ComputesThePromptOfAllSamplesOnce) {
  const auto engine = MakeEngine();
  TokensOf(*engine, {SampledRequest(20, 8)});
  EXPECT_EQ(engine->stats().prefill_tokens, 25);
}

TEST(SamplerInEngine, EndsWhenTheListenerSaysSo) {
  const auto engine = MakeEngine();
  std::vector<size_t> heard;
  const auto completions =
      Must(engine->Generate({SampledRequest(0, 2)}, [&](const NewToken& token) {
        heard.push_back(token.completion);
        return token.completion == 1 || heard.size() < 3;
      }));
  EXPECT_EQ(completions[0].tokens.size(), 2u);
  EXPECT_EQ(completions[0].finish, FinishReason::kEnded);
  EXPECT_EQ(completions[1].tokens.size(), 12u);
  EXPECT_EQ(completions[1].finish, FinishReason::kLength);
}

TEST(SamplerInEngine, ForbidsStopTokensBeforeMinTokens) {
  const auto engine = MakeEngine();
  Request request = SampledRequest(0, 1);
  request.sampling.temperature = 0;
  const int64_t first = TokensOf(*engine, {request})[0][0];
  request.stop_tokens = {first};
  EXPECT_EQ(TokensOf(*engine, {request})[0].size(), 1u);
  request.sampling.min_tokens = 3;
  const auto tokens = TokensOf(*engine, {request})[0];
  EXPECT_GE(tokens.size(), 3u);
  EXPECT_EQ(std::count(tokens.begin(), tokens.begin() + 3, first), 0);
}

TEST(SamplerInEngine, NamesTheFieldOfABadRequest) {
  const auto engine = MakeEngine();
  Request request = SampledRequest(0, 17);
  EXPECT_EQ(FirstError(Must(engine->Generate({request}))).message(),
            "request 0: samples: expected 1 to 16, got 17");
  request.samples = 1;
  request.sampling.top_p = 2;
  EXPECT_EQ(FirstError(Must(engine->Generate({request}))).message(),
            "request 0: top_p: expected more than 0, at most 1, got 2");
}

}  // namespace
}  // namespace pagefuse
