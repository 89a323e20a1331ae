// SPDX-License-Identifier: Apache-2.0
// Extremes, the Hadamard transform and rounding of rows against plain loops, on every SIMD target.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// Bits of the largest magnitude of each of four rows: found together, and each alone.
using LargestOfFour = std::array<std::array<uint32_t, 4>, 2>;

}  // namespace pagefuse

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/rows_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/kernels/numeric/extremes-inl.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/numeric/round_through-inl.h"

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

// False, with nothing found, where the rows are no whole vectors.
template <typename T>
bool FindLargest([[maybe_unused]] const std::array<std::vector<T>, 4>& rows,
                 [[maybe_unused]] LargestOfFour& largest) {
#if HWY_TARGET == HWY_SCALAR
  return false;
#else
  const size_t n = rows[0].size();
  if (n % hn::Lanes(hn::ScalableTag<float>()) != 0) return false;
  LargestBitsOfFour([&](size_t r) { return rows[r].data(); }, n, largest[0].data());
  for (size_t r = 0; r < 4; ++r) largest[1][r] = LargestBits(rows[r].data(), n);
  return true;
#endif
}
bool FindLargestFloats(const std::array<std::vector<float>, 4>& rows, LargestOfFour& largest) {
  return FindLargest(rows, largest);
}
bool FindLargestBfloats(const std::array<std::vector<Bfloat16>, 4>& rows, LargestOfFour& largest) {
  return FindLargest(rows, largest);
}

void RoundThroughHalves(std::vector<float>& x) { RoundThroughVectors<Float16>(x.data(), x.size()); }
void RoundThroughBfloats(std::vector<float>& x) {
  RoundThroughVectors<Bfloat16>(x.data(), x.size());
}

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
HWY_EXPORT(FindLargestFloats);
HWY_EXPORT(FindLargestBfloats);
HWY_EXPORT(RoundThroughHalves);
HWY_EXPORT(RoundThroughBfloats);
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

// Finds the largest of rows of all lengths; the number of lengths that are whole vectors.
template <typename T, class Find>
int ExpectLargest(const Find& find) {
  std::mt19937 random(11);
  int found = 0;
  for (size_t n = 4; n <= 200; n += 4) {
    for (const bool special : {false, true}) {
      std::array<std::vector<T>, 4> rows;
      std::array<uint32_t, 4> expected = {};
      for (size_t r = 0; r < 4; ++r) {
        rows[r] = RandomRow<T>(n, special, random);
        for (const T element : rows[r]) {
          const float magnitude = std::fabs(static_cast<float>(element));
          expected[r] = std::max(expected[r], std::bit_cast<uint32_t>(magnitude));
        }
      }
      LargestOfFour largest;
      if (!find(rows, largest)) continue;
      ++found;
      EXPECT_EQ(largest[0], expected) << n << (special ? " with NaN" : "");
      EXPECT_EQ(largest[1], expected) << n << (special ? " with NaN" : "");
    }
  }
  return found;
}

TEST(Extremes, LargestBitsOfFourRowsAreThoseOfEach) {
  int found = 0;
  testing::ForEachSimdTarget([&] {
    found += ExpectLargest<float>([](const auto& rows, auto& largest) {
      return HWY_DYNAMIC_DISPATCH(FindLargestFloats)(rows, largest);
    });
    found += ExpectLargest<Bfloat16>([](const auto& rows, auto& largest) {
      return HWY_DYNAMIC_DISPATCH(FindLargestBfloats)(rows, largest);
    });
  });
  EXPECT_GT(found, 0);
}

// Of any bits: subnormals, infinities, NaN with payloads, and halves between two of T.
template <typename T, class Round>
void ExpectRounded(const Round& round) {
  std::mt19937 random(6);
  for (size_t n = 1; n <= 200; ++n) {
    std::vector<float> x(n);
    for (float& v : x) {
      const auto bits = static_cast<uint32_t>(random());
      v = std::bit_cast<float>(random() % 4 == 0 ? (bits & ~0x7FFFu) : bits);
    }
    std::vector<float> got = x;
    round(got);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                std::bit_cast<uint32_t>(static_cast<float>(T(x[i]))))
          << std::hex << std::bit_cast<uint32_t>(x[i]);
    }
  }
}

TEST(RoundThrough, RoundsAsEachNumberAlone) {
  testing::ForEachSimdTarget([] {
    ExpectRounded<Float16>([](auto& x) { HWY_DYNAMIC_DISPATCH(RoundThroughHalves)(x); });
    ExpectRounded<Bfloat16>([](auto& x) { HWY_DYNAMIC_DISPATCH(RoundThroughBfloats)(x); });
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
