// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_f32.h"

#include <cfloat>
#include <cmath>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

using testing::DoubleProduct;
using testing::ForEachSimdTarget;
using testing::MultiplyInDouble;
using testing::RandomFloats;

constexpr float kGuard = 12345.0f;

struct Sizes {
  int64_t k;
  int64_t n;
};
// The last three are cut into several chunks along k, blocks of these and tiles of columns.
const Sizes kSizes[] = {{1, 1},  {3, 17},    {7, 64},     {130, 33},
                        {64, 1}, {2090, 70}, {1031, 259}, {120, 4100}};
const int64_t kRows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 40};

std::vector<float> Multiply(const RowsView& x, const WeightView& w) {
  std::vector<float> scratch(LinearF32ScratchBytes(x.m, w) / sizeof(float) + 16);
  std::vector<float> y(x.m * (w.n + 1), kGuard);
  LinearF32(x, w, scratch.data(), {y.data(), w.n + 1});
  std::vector<float> result;
  for (int64_t r = 0; r < x.m; ++r) {
    EXPECT_EQ(y[r * (w.n + 1) + w.n], kGuard);
    result.insert(result.end(), y.begin() + r * (w.n + 1), y.begin() + (r + 1) * (w.n + 1) - 1);
  }
  return result;
}

TEST(LinearF32, AgreesWithDoubleForEveryShapeAndTarget) {
  for (const Sizes& s : kSizes) {
    const std::vector<float> weights = RandomFloats(s.k * s.n + 1, 1);
    const std::vector<float> x = RandomFloats(40 * (s.k + 1), 2);
    for (bool transposed : {false, true}) {
      // Misaligned by an element.
      const WeightView w{weights.data() + 1, s.k, s.n, transposed};
      const DoubleProduct want = MultiplyInDouble({x.data(), 40, s.k + 1}, w);
      ForEachSimdTarget([&] {
        for (int64_t m : kRows) {
          const std::vector<float> y = Multiply({x.data(), m, s.k + 1}, w);
          for (int64_t i = 0; i < m * s.n; ++i) {
            // A sum of k terms in any order is off by at most k roundings of its magnitude; sqrt(k)
            // is typical.
            const double bound = FLT_EPSILON * (2 + std::sqrt(s.k)) * want.magnitude[i];
            ASSERT_NEAR(y[i], want.y[i], bound) << "m " << m << " k " << s.k << " n " << s.n;
          }
        }
      });
    }
  }
}

// 600 rows by 900 columns are cut into tiles; 40 by 100 are not.
TEST(LinearF32, ProductsOfManyRowsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const auto& [m, k, n] : {std::tuple{600, 130, 900}, {40, 300, 100}}) {
    for (bool transposed : {false, true}) {
      const std::vector<float> weights = RandomFloats(k * n, 3);
      const std::vector<float> x = RandomFloats(m * k, 4);
      std::vector<std::vector<float>> results;
      for (int size : {1, 2, 3}) {
        ThreadPool pool(size);
        const ScopedWorkerPool scope(&pool);
        results.push_back(Multiply({x.data(), m, k}, {weights.data(), k, n, transposed}));
      }
      EXPECT_EQ(results[0], results[1]) << m;
      EXPECT_EQ(results[0], results[2]) << m;
    }
  }
}

TEST(LinearF32, ZeroRowsOfTheWeightGiveZeros) {
  EXPECT_EQ(Multiply({nullptr, 2, 0}, {nullptr, 0, 3, false}), std::vector<float>(6, 0.0f));
}

TEST(GatedLinearF32, AgreesWithDoubleForEveryActivation) {
  const int64_t k = 65, n = 1100;
  const std::vector<float> gate_weights = RandomFloats(k * n, 5);
  const std::vector<float> up_weights = RandomFloats(k * n, 6);
  std::vector<float> x = RandomFloats(20 * k, 7);
  for (float& v : x) v *= 0.1f;
  const WeightView gate{gate_weights.data(), k, n, false};
  const WeightView up{up_weights.data(), k, n, false};
  for (Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    for (int64_t m : {1, 16, 17, 20}) {
      const RowsView rows{x.data(), m, k};
      const DoubleProduct g = MultiplyInDouble(rows, gate);
      const DoubleProduct u = MultiplyInDouble(rows, up);
      std::vector<float> scratch(GatedLinearF32ScratchBytes(m, gate) / sizeof(float) + 16);
      std::vector<float> y(m * n);
      GatedLinearF32(rows, {gate, up, activation}, scratch.data(), {y.data(), n});
      for (int64_t i = 0; i < m * n; ++i) {
        const double want = ApplyActivation(activation, g.y[i]) * u.y[i];
        // The activation's slope is at most 1.13; so errors of both products add up.
        const double bound = FLT_EPSILON * 10 *
                             (1.2 * g.magnitude[i] * std::abs(u.y[i]) +
                              u.magnitude[i] * std::abs(ApplyActivation(activation, g.y[i])));
        ASSERT_NEAR(y[i], want, bound + 1e-30) << "m " << m << " i " << i;
      }
    }
  }
}

TEST(GatedProduct, ActivationsAreAccurateOverTheirRange) {
  std::vector<float> gate;
  for (float x = -30.0f; x < 30.0f; x += 0.0137f) gate.push_back(x);
  const std::vector<float> up(gate.size(), 1.0f);
  for (Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    ForEachSimdTarget([&] {
      std::vector<float> out(gate.size());
      GatedProduct(activation, gate.data(), up.data(), gate.size(), out.data());
      for (size_t i = 0; i < gate.size(); ++i) {
        const double want = ApplyActivation(activation, gate[i]);
        // Far out on the negative side the exponent's own rounding shows: relative 1e-7 *
        // |exponent|.
        const double rtol = gate[i] > -2.0f ? 1e-6 : 2e-5;
        ASSERT_NEAR(out[i], want, rtol * std::abs(want) + 1e-35) << gate[i];
      }
    });
  }
}

TEST(GatedProduct, LimitsAreExact) {
  const float inf = std::numeric_limits<float>::infinity();
  const float gate[] = {1e30f, -1e30f, 0.0f, inf, 100.0f, -1000.0f};
  const float up[] = {1, 1, 1, 1, 2, 1};
  for (Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    ForEachSimdTarget([&] {
      float out[6];
      GatedProduct(activation, gate, up, 6, out);
      EXPECT_EQ(out[0], 1e30f);
      EXPECT_NEAR(out[1], 0.0f, 1e-7f);
      EXPECT_EQ(out[2], 0.0f);
      EXPECT_EQ(out[3], inf);
      EXPECT_EQ(out[4], 200.0f);
      EXPECT_NEAR(out[5], 0.0f, 1e-30f);
    });
  }
}

}  // namespace
}  // namespace pagefuse
