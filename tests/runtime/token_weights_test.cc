// SPDX-License-Identifier: Apache-2.0
// Integer weights of rows against sums and sorting of all of them.
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gtest/gtest.h"
#include "must.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/numeric/share_of.h"

namespace pagefuse {
namespace {

constexpr uint64_t kWhole = uint64_t{1} << kWeightBits;

std::vector<float> RandomRow(std::mt19937& random, size_t size) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(size);
  const bool coarse = random() % 3 == 0;  // many equal logits
  for (float& logit : row) logit = coarse ? std::round(normal(random)) : normal(random);
  if (random() % 4 == 0) row[random() % size] = -std::numeric_limits<float>::infinity();
  if (random() % 4 == 0) row[random() % size] = 30;
  row[random() % size] = 1;  // a finite one
  return row;
}

double RandomInverse(std::mt19937& random) {
  return std::exp(std::uniform_real_distribution<double>(-4, 12)(random));
}

TEST(TokenWeights, SharesAreRoundedUpExactly) {
  EXPECT_EQ(ShareOf(0, kWhole), 0u);
  EXPECT_EQ(ShareOf(1, kWhole), kWhole);
  EXPECT_EQ(ShareOf(1, ~uint64_t{0}), ~uint64_t{0});
  EXPECT_EQ(ShareOf(0.5, 7), 4u);
  EXPECT_EQ(ShareOf(0.25, 8), 2u);
  EXPECT_EQ(ShareOf(std::numeric_limits<double>::denorm_min(), ~uint64_t{0}), 1u);
  EXPECT_EQ(ShareOf(1e-20, ~uint64_t{0}), 1u);
  // 0.1 is a little more than a tenth, 0.3 a little less than three tenths.
  EXPECT_EQ(ShareOf(0.1, 1'000'000'000'000'000'000), 100'000'000'000'000'006u);
  EXPECT_EQ(ShareOf(0.3, 1'000'000'000'000'000'000), 299'999'999'999'999'989u);
}

TEST(TokenWeights, FindWhereTheSumPasses) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = RandomRow(random, 1 + random() % 3000);
    const LogitRow row = Must(LogitRow::Of(logits));
    const double inverse = RandomInverse(random);
    const std::vector<uint64_t> weights = WeightsOf(row, inverse);
    const TokenWeights sums(row, inverse);
    ASSERT_EQ(sums.total(), std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
    for (int i = 0; i < 20; ++i) {
      const uint64_t goal =
          i == 0   ? 0
          : i == 1 ? sums.total() - 1
                   : std::uniform_int_distribution<uint64_t>(0, sums.total() - 1)(random);
      size_t expected = 0;
      for (uint64_t sum = weights[0]; sum <= goal; sum += weights[++expected]) {
      }
      ASSERT_EQ(sums.IndexOf(goal), expected);
    }
  }
}

// All of them sorted.
std::vector<int32_t> FewestBySorting(const LogitRow& row, double inverse, double part) {
  const std::vector<uint64_t> weights = WeightsOf(row, inverse);
  std::vector<int32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row.logits()[a] > row.logits()[b]; });
  const uint64_t goal = ShareOf(part, std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
  size_t kept = 0;
  for (uint64_t sum = 0; sum < goal; sum += weights[order[kept++]]) {
  }
  order.resize(kept);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TokenWeights, KeepTheFewestThatSortingKeeps) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(2);
    for (int round = 0; round < 400; ++round) {
      const std::vector<float> logits = RandomRow(random, 1 + random() % 3000);
      const LogitRow row = Must(LogitRow::Of(logits));
      const double inverse = RandomInverse(random);
      for (const double part : {1e-9, 0.3, 0.9, 0.999, 1.0}) {
        ASSERT_EQ(FewestThatReach(row, inverse, part), FewestBySorting(row, inverse, part))
            << round << " " << part;
      }
    }
  });
}

TEST(TokenWeights, KeepTheFirstOfEqualLogits) {
  const std::vector<float> logits(1000, -2);
  const LogitRow row = Must(LogitRow::Of(logits));
  std::vector<int32_t> expected(251);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(FewestThatReach(row, 1, 0.2501), expected);
}

}  // namespace
}  // namespace pagefuse
