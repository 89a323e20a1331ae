// SPDX-License-Identifier: Apache-2.0
// The exponential and hyperbolic tangent of the softmax, against double precision.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/paged_attention_math_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

// count is a multiple of 16.
void ExpArray(const float* x, size_t count, float* y) {
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    hn::StoreU(Exp(df, hn::LoadU(df, x + i)), df, y + i);
  }
}

void TanhArray(const float* x, size_t count, float* y) {
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    hn::StoreU(Tanh(df, hn::LoadU(df, x + i)), df, y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace pagefuse {

HWY_EXPORT(ExpArray);
HWY_EXPORT(TanhArray);

namespace testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Grid(float low, float high) {
  constexpr int kPoints = 1 << 16;
  std::vector<float> x(kPoints);
  for (int i = 0; i < kPoints; ++i) x[i] = low + (high - low) * static_cast<float>(i) / kPoints;
  return x;
}

// Units in the last place of the exact value.
double UlpsApart(float got, double exact) {
  const float next = std::nextafter(std::abs(static_cast<float>(exact)), kInfinity);
  return std::abs(got - exact) / (next - std::abs(static_cast<float>(exact)));
}

TEST(SoftmaxMath, ExpIsWithinTwoUnits) {
  const std::vector<float> x = Grid(-87, 88);
  std::vector<float> y(x.size());
  ForEachSimdTarget([&] {
    HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, UlpsApart(y[i], std::exp(static_cast<double>(x[i]))));
    }
    EXPECT_LE(worst, 2);
  });
}

TEST(SoftmaxMath, ExpOfSpecialValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0, -0.0f, -kInfinity, -1e30f, -88, -104, nan, -nan,
                                0, 0,     0,          0,      0,   0,    0,   0};
  std::vector<float> y(x.size());
  ForEachSimdTarget([&] {
    HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
    for (int i = 2; i < 6; ++i) EXPECT_EQ(y[i], 0) << x[i];
    EXPECT_TRUE(std::isnan(y[6]));
    EXPECT_TRUE(std::isnan(y[7]));
  });
}

TEST(SoftmaxMath, TanhIsWithinFourUnits) {
  for (const auto& [low, high] : {std::pair(-12.0f, 12.0f), std::pair(-0.5f, 0.5f)}) {
    const std::vector<float> x = Grid(low, high);
    std::vector<float> y(x.size());
    ForEachSimdTarget([&] {
      HWY_DYNAMIC_DISPATCH(TanhArray)(x.data(), x.size(), y.data());
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = std::tanh(static_cast<double>(x[i]));
        if (exact != 0) worst = std::max(worst, UlpsApart(y[i], exact));
      }
      EXPECT_LE(worst, 4);
    });
  }
}

TEST(SoftmaxMath, TanhOfLargeValuesIsOne) {
  const std::vector<float> x = {20,   100, 1e30f, kInfinity, -20, -100, -1e30f, -kInfinity,
                                1000, 89,  44.5f, 0,         0,   0,    0,      0};
  std::vector<float> y(x.size());
  ForEachSimdTarget([&] {
    HWY_DYNAMIC_DISPATCH(TanhArray)(x.data(), x.size(), y.data());
    for (int i = 0; i < 11; ++i) EXPECT_EQ(y[i], x[i] > 0 ? 1 : -1) << x[i];
  });
}

}  // namespace
}  // namespace testing
}  // namespace pagefuse
#endif
