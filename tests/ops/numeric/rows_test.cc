// Extremes and the Hadamard transform of rows against plain loops, on every SIMD target.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/numeric/small_float.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/rows_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/numeric/extremes-inl.h"
#include "pagefuse/ops/numeric/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

// The largest magnitude, the lowest and the highest number.
template <typename T>
std::array<float, 3> ExtremesOf(const std::vector<T>& x) {
  const Range range = RangeOf(x.data(), x.size());
  return {LargestMagnitude(x.data(), x.size()), range.low, range.high};
}
std::array<float, 3> ExtremesOfFloats(const std::vector<float>& x) { return ExtremesOf(x); }
std::array<float, 3> ExtremesOfHalves(const std::vector<Float16>& x) { return ExtremesOf(x); }
std::array<float, 3> ExtremesOfBfloats(const std::vector<Bfloat16>& x) { return ExtremesOf(x); }

void Hadamard(std::vector<float>& x) { HadamardVectors(x.data(), x.size()); }

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {
namespace {

HWY_EXPORT(ExtremesOfFloats);
HWY_EXPORT(ExtremesOfHalves);
HWY_EXPORT(ExtremesOfBfloats);
HWY_EXPORT(Hadamard);
using Extremes = std::array<float, 3>;

// Of random numbers; some are NaN or infinite where `special`, but not the first.
template <typename T>
std::vector<T> RandomRow(size_t n, bool special, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<T> x;
  for (size_t i = 0; i < n; ++i) {
    const bool is_special = special && i > 0 && random() % 8 == 0;
    x.push_back(T(!is_special ? normal(random) : random() % 2 == 0 ? NAN : -INFINITY));
  }
  return x;
}

template <typename T, class Find>
void ExpectExtremes(const Find& find) {
  std::mt19937 random(9);
  for (size_t n = 1; n <= 200; ++n) {
    for (const bool special : {false, true}) {
      const std::vector<T> x = RandomRow<T>(n, special, random);
      Extremes expected = {0, static_cast<float>(x[0]), static_cast<float>(x[0])};
      for (const T element : x) {
        const auto v = static_cast<float>(element);
        expected[0] = std::max(expected[0], std::fabs(v));
        expected[1] = std::min(expected[1], v);
        expected[2] = std::max(expected[2], v);
      }
      ASSERT_EQ(find(x), expected) << n << (special ? " with NaN" : "");
    }
  }
}

TEST(Extremes, AreThoseOfThePlainLoop) {
  testing::ForEachSimdTarget([] {
    ExpectExtremes<float>([](const auto& x) { return HWY_DYNAMIC_DISPATCH(ExtremesOfFloats)(x); });
    ExpectExtremes<Float16>(
        [](const auto& x) { return HWY_DYNAMIC_DISPATCH(ExtremesOfHalves)(x); });
    ExpectExtremes<Bfloat16>(
        [](const auto& x) { return HWY_DYNAMIC_DISPATCH(ExtremesOfBfloats)(x); });
  });
}

TEST(Extremes, RangeIsNotANumberWhereTheFirstIsNone) {
  testing::ForEachSimdTarget([] {
    for (const size_t n : {1, 5, 16, 70, 128}) {
      std::vector<float> x(n, 1.0f);
      x[0] = NAN;
      const Extremes got = HWY_DYNAMIC_DISPATCH(ExtremesOfFloats)(x);
      EXPECT_TRUE(std::isnan(got[1])) << n;
      EXPECT_TRUE(std::isnan(got[2])) << n;
    }
  });
}

TEST(Hadamard, AddsInTheOrderOfThePlainLoops) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(4);
    for (size_t n = 1; n <= 2048; n *= 2) {
      std::vector<float> expected = RandomRow<float>(n, /*special=*/false, random);
      std::vector<float> got = expected;
      HadamardTransform(expected.data(), static_cast<int64_t>(n));
      HWY_DYNAMIC_DISPATCH(Hadamard)(got);
      ASSERT_EQ(got, expected) << n;
    }
  });
}

}  // namespace
}  // namespace pagefuse
#endif  // HWY_ONCE
