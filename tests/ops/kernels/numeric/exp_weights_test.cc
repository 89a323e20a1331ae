// SPDX-License-Identifier: Apache-2.0
// Integer weights against the exponential, and bit by bit against the same steps in plain C++, on
// every SIMD target.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/rows/exp_weights_hwy.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The definition, one operation after the other.
uint64_t PlainWeight(float logit, const WeightScale& scale) {
  const double x = std::max((logit - scale.largest) * scale.inverse_temperature, -40.0);
  const double k = std::fma(x, 0x1.71547652b82fep0, 0x1.8p52) - 0x1.8p52;
  double r = std::fma(k, -0x1.62e42fefa39efp-1, x);
  r = std::fma(k, -0x1.abc9e3b39803fp-56, r);
  double factorial = 6227020800, sum = 1 / factorial;  // 13!
  for (int i = 13; i > 0; --i) {
    factorial /= i;
    sum = std::fma(sum, r, 1 / factorial);
  }
  return static_cast<uint64_t>(std::nearbyint(std::ldexp(sum, static_cast<int>(k) + kWeightBits)));
}

std::vector<float> RandomLogits(std::mt19937& random, size_t size) {
  std::normal_distribution<float> normal(0, std::ldexp(1.0f, static_cast<int>(random() % 8) - 3));
  std::vector<float> logits(size);
  for (float& logit : logits) logit = random() % 50 == 0 ? -kInfinity : normal(random);
  logits[random() % size] = 3;
  return logits;
}

float LargestOf(const std::vector<float>& logits) {
  return *std::max_element(logits.begin(), logits.end());
}

TEST(ExpWeights, HaveTheBitsOfTheDefinitionOnEveryTarget) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
      const std::vector<float> logits = RandomLogits(random, 1 + random() % 700);
      const WeightScale scale{LargestOf(logits), std::exp(static_cast<double>(random() % 12) - 3)};
      std::vector<uint64_t> weights(logits.size() + 1, 77), expected;
      const auto n = static_cast<int64_t>(logits.size());
      const uint64_t sum = ExpWeights(logits.data(), n, scale, weights.data());
      for (float logit : logits) expected.push_back(PlainWeight(logit, scale));
      EXPECT_EQ(sum, std::accumulate(expected.begin(), expected.end(), uint64_t{0}));
      EXPECT_EQ(SumExpWeights(logits.data(), n, scale), sum);
      expected.push_back(77);  // nothing behind the row is written
      ASSERT_EQ(weights, expected);
    }
  });
}

TEST(ExpWeights, AreTheExponentialRounded) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-33, 0);
  constexpr int kLogits = 100'000;
  std::vector<float> logits(kLogits);
  for (float& logit : logits) logit = uniform(random);
  std::vector<uint64_t> weights(kLogits);
  ExpWeights(logits.data(), kLogits, {0, 1}, weights.data());
  int others = 0;
  for (int i = 0; i < kLogits; ++i) {
    const long double exact =
        std::ldexp(std::exp(static_cast<long double>(logits[i])), kWeightBits);
    ASSERT_LE(std::abs(static_cast<long double>(weights[i]) - exact), 0.51L) << logits[i];
    others += weights[i] != static_cast<uint64_t>(std::nearbyint(exact)) ? 1 : 0;
  }
  EXPECT_LT(others, kLogits / 500);  // where the exponential is all but half way between two
}

TEST(ExpWeights, SumEquallyHoweverTheyAreCut) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
      const std::vector<float> logits = RandomLogits(random, 2000);
      const WeightScale scale{LargestOf(logits), 0.3};
      uint64_t sum = 0;
      for (int64_t i = 0, count; i < 2000; i += count) {
        count = std::min<int64_t>(2000 - i, 1 + random() % 600);
        sum += SumExpWeights(logits.data() + i, count, scale);
      }
      ASSERT_EQ(sum, SumExpWeights(logits.data(), 2000, scale));
    }
  });
}

TEST(ExpWeights, AreWholeForTheLargestAndNothingForInfinity) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const float logits[] = {3, -kInfinity, 2};
  for (const double inverse : {1e-2, 1.0, kMost}) {
    uint64_t weights[3];
    ExpWeights(logits, 3, {3, inverse}, weights);
    EXPECT_EQ(weights[0], uint64_t{1} << kWeightBits);
    EXPECT_EQ(weights[1], 0u);
    EXPECT_EQ(weights[2] == 0, inverse == kMost);
  }
  EXPECT_EQ(SumExpWeights(logits, 0, {3, 1}), 0u);
  // As many as may be, of the largest weight.
  const std::vector<float> equal(kMostWeights, 5);
  EXPECT_EQ(SumExpWeights(equal.data(), kMostWeights, {5, 1}), static_cast<uint64_t>(kMostWeights)
                                                                   << kWeightBits);
}

TEST(IndicesAtLeast, AreThoseOfAPlainLoop) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(4);
    for (int round = 0; round < 300; ++round) {
      const std::vector<float> x = RandomLogits(random, 1 + random() % 700);
      const float least =
          round % 3 == 0 ? x[random() % x.size()] : static_cast<float>(round % 7) - 3;
      std::vector<int32_t> expected, indices(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        if (x[i] >= least) expected.push_back(static_cast<int32_t>(100 + i));
      }
      indices.resize(
          IndicesAtLeast(x.data(), static_cast<int64_t>(x.size()), least, 100, indices.data()));
      ASSERT_EQ(indices, expected);
    }
  });
}

}  // namespace
}  // namespace pagefuse::onnx_ops
