// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "nbits_support.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

using testing::ElementOf;
using testing::ForEachSimdTarget;
using testing::kSizes;
using testing::MakeWeight;
using testing::RandomFloats;
using testing::Sizes;
using testing::Weight;
using testing::Zeros;

constexpr float kGuard = 12345.0f;

std::vector<float> Multiply(const RowsView& x, const NBitsLanes& w) {
  std::vector<char> scratch(NBitsInt8ScratchBytes(x.m, w) + 64);
  const int64_t stride = w.n + 1;
  std::vector<float> y(static_cast<size_t>(x.m * stride), kGuard);
  void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  LinearNBitsInt8(x, w, aligned, {y.data(), stride});
  std::vector<float> result;
  for (int64_t r = 0; r < x.m; ++r) {
    EXPECT_EQ(y[r * stride + w.n], kGuard);
    result.insert(result.end(), y.begin() + r * stride, y.begin() + (r + 1) * stride - 1);
  }
  return result;
}

std::vector<float> Multiply(const RowsView& x, const NBitsWeight& w) {
  return Multiply(x, OwnedLanes(w).view());
}

// A row as the header says that it is rounded: the elements that the product is made of.
std::vector<double> Rounded(const float* x, int64_t k) {
  std::vector<double> row(x, x + k);
  for (int64_t b = 0; b < k; b += kInt8Block) {
    const int64_t end = std::min(b + kInt8Block, k);
    float largest = 0;
    for (int64_t i = b; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    for (int64_t i = b; i < end && largest > 0; ++i) {
      row[i] = std::nearbyint(x[i] * (127 / largest)) * static_cast<double>(largest / 127);
    }
  }
  return row;
}

const int64_t kRows[] = {1, 2, 3, 5, 8, 17, 33, 41};

// Integers with a largest of 127 in each block have the unit 1: no sum rounds.
std::vector<float> Integers(int64_t m, int64_t k) {
  std::mt19937 random(static_cast<uint32_t>(k));
  std::vector<float> x(static_cast<size_t>(m * k));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(random() % 255) - 127);
    if (static_cast<int64_t>(i) % k % kInt8Block == 0) x[i] = random() % 2 == 0 ? 127.0f : -127.0f;
  }
  return x;
}

void ExpectExact(const NBitsWeight& w) {
  constexpr int64_t kMost = 41;
  const std::vector<float> x = Integers(kMost, w.k);
  std::vector<double> want;
  for (int64_t r = 0; r < kMost; ++r) {
    for (int64_t n = 0; n < w.n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < w.k; ++k) sum += x[r * w.k + k] * ElementOf(w, n, k);
      want.push_back(sum);
    }
  }
  const OwnedLanes lanes(w);
  ForEachSimdTarget([&] {
    for (int64_t m : kRows) {
      const std::vector<float> y = Multiply({x.data(), m, w.k}, lanes.view());
      for (int64_t i = 0; i < m * w.n; ++i) ASSERT_EQ(y[i], want[i]) << "m " << m << " at " << i;
    }
  });
}

TEST(NBitsInt8, SumsOfIntegersAreExactForEveryShapeAndTarget) {
  for (int bits : {4, 8}) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE("bits " + std::to_string(bits) + " k " + std::to_string(s.k) + " n " +
                   std::to_string(s.n) + " block " + std::to_string(s.block));
      ExpectExact(MakeWeight(bits, s.k, s.n, s.block, s.zeros).view);
    }
  }
  // Tiles take this in two parts along k.
  ExpectExact(MakeWeight(4, 1184, 70, 32, Zeros::kNone).view);
}

TEST(NBitsInt8, RoundsActivationsByBlocks) {
  for (int bits : {4, 8}) {
    const Weight weight = MakeWeight(bits, 300, 67, 32, Zeros::kNone);
    const NBitsWeight& w = weight.view;
    const std::vector<float> x = RandomFloats(41 * w.k, 5);
    ForEachSimdTarget([&] {
      for (int64_t m : kRows) {
        const std::vector<float> y = Multiply({x.data(), m, w.k}, w);
        for (int64_t i = 0; i < m * w.n; ++i) {
          const std::vector<double> row = Rounded(x.data() + i / w.n * w.k, w.k);
          double want = 0, codes = 0;  // the kernel subtracts zero points from sums of codes
          for (int64_t k = 0; k < w.k; ++k) {
            want += row[k] * ElementOf(w, i % w.n, k);
            codes += std::abs(row[k]) * (1 << bits) * 2;
          }
          ASSERT_NEAR(y[i], want, FLT_EPSILON * 12 * codes) << "m " << m << " at " << i;
        }
      }
    });
  }
}

TEST(NBitsInt8, IsNoFartherFromTheFloatProductThanTheUnitsSay) {
  const Weight weight = MakeWeight(4, 256, 40, 32, Zeros::kNone);
  const NBitsWeight& w = weight.view;
  const std::vector<float> x = RandomFloats(3 * w.k, 6);
  const std::vector<float> y = Multiply({x.data(), 3, w.k}, w);
  for (int64_t i = 0; i < 3 * w.n; ++i) {
    const float* row = x.data() + i / w.n * w.k;
    double want = 0, bound = 1e-3;
    for (int64_t b = 0; b < w.k; b += kInt8Block) {
      float largest = 0;
      double weights = 0;
      for (int64_t k = b; k < b + kInt8Block; ++k) {
        largest = std::max(largest, std::abs(row[k]));
        want += row[k] * ElementOf(w, i % w.n, k);
        weights += std::abs(ElementOf(w, i % w.n, k));
      }
      bound += largest / 127 / 2 * weights;
    }
    EXPECT_NEAR(y[i], want, bound);
  }
}

TEST(NBitsInt8, RowsWithoutNumbersAreNaNAndTheOthersAreNot) {
  const Weight weight = MakeWeight(8, 96, 20, 32, Zeros::kNone);
  std::vector<float> x(5 * 96, 0.0f);
  x[1 * 96 + 40] = std::numeric_limits<float>::quiet_NaN();
  x[3 * 96 + 95] = -std::numeric_limits<float>::infinity();
  x[4 * 96] = std::numeric_limits<float>::denorm_min();
  ForEachSimdTarget([&] {
    const std::vector<float> y = Multiply({x.data(), 5, 96}, weight.view);
    for (int64_t i = 0; i < 5 * 20; ++i) {
      if (i / 20 == 1 || i / 20 == 3) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(y[i], 0.0f);
      }
    }
  });
}

TEST(NBitsInt8, DoesNotDependOnTheNumberOfThreads) {
  const Weight weight = MakeWeight(4, 2048, 300, 32, Zeros::kNone);
  for (int64_t m : {1, 5, 600}) {
    const std::vector<float> x = RandomFloats(m * 2048, 7);
    std::vector<std::vector<float>> results;
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const ScopedWorkerPool scope(&pool);
      results.push_back(Multiply({x.data(), m, 2048}, weight.view));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

// Scales are float16 where all of them are that: one that is not makes all of them float.
TEST(NBitsInt8, ScalesInHalvesGiveTheSameBits) {
  for (int bits : {4, 8}) {
    for (const Sizes& s : kSizes) {
      Weight weight = MakeWeight(bits, s.k, s.n, s.block, s.zeros);
      for (size_t i = 0; i < weight.scales.size(); ++i) {
        weight.scales[i] = static_cast<float>(Float16(0.001f * static_cast<float>(i * 7 % 91)));
      }
      const OwnedLanes halves(weight.view);
      ASSERT_NE(halves.view().half_scales, nullptr);
      // Another row whose scale is no float16: its lane is not compared.
      Weight wider = weight;
      const int64_t blocks = weight.view.blocks();
      wider.scales.insert(wider.scales.end(), blocks, 0.1f);
      wider.codes.resize(static_cast<size_t>((s.n + 1) * weight.view.row_bytes));
      wider.zero_codes.resize(static_cast<size_t>((s.n + 1) * weight.view.zero_row_bytes));
      wider.zeros.resize(static_cast<size_t>((s.n + 1) * blocks));
      wider.view.n = s.n + 1;
      wider.view.codes = wider.codes.data();
      wider.view.scales = wider.scales.data();
      if (wider.view.zero_codes != nullptr) wider.view.zero_codes = wider.zero_codes.data();
      if (wider.view.zeros != nullptr) wider.view.zeros = wider.zeros.data();
      const OwnedLanes floats(wider.view);
      ASSERT_EQ(floats.view().half_scales, nullptr);
      const std::vector<float> x = RandomFloats(17 * s.k, 9);
      ForEachSimdTarget([&] {
        for (int64_t m : {1, 3, 17}) {
          const std::vector<float> want = Multiply({x.data(), m, s.k}, halves.view());
          const std::vector<float> got = Multiply({x.data(), m, s.k}, floats.view());
          for (int64_t i = 0; i < m * s.n; ++i) {
            ASSERT_EQ(got[i / s.n * (s.n + 1) + i % s.n], want[i]) << "m " << m << " at " << i;
          }
        }
      });
    }
  }
}

TEST(NBitsLanes, HoldWhatTheRowsHold) {
  for (int bits : {4, 8}) {
    for (const Sizes& s : kSizes) {
      const Weight weight = MakeWeight(bits, s.k, s.n, s.block, s.zeros);
      const OwnedLanes lanes(weight.view);
      for (int64_t r = 0; r < s.n; ++r) {
        for (int64_t k = 0; k < s.k; ++k) {
          ASSERT_EQ(lanes.view().Code(r, k), weight.view.Code(r, k)) << r << ", " << k;
        }
        for (int64_t b = 0; b < weight.view.blocks(); ++b) {
          ASSERT_EQ(lanes.view().Scale(r, b), weight.scales[r * weight.view.blocks() + b]);
        }
      }
    }
  }
}

TEST(NBitsLanes, WholeGroupsArePackedWhereTheyLie) {
  const LaneRows rows{.count = 3, .n = 32, .each = 7};
  ASSERT_TRUE(rows.is_whole());
  std::vector<uint32_t> words(static_cast<size_t>(rows.lane_size()));
  std::iota(words.begin(), words.end(), 0U);
  std::vector<uint32_t> apart(words.size());
  PackLanes(words.data(), rows, apart.data());
  PackLanes(words.data(), rows, words.data());
  EXPECT_EQ(words, apart);
  EXPECT_EQ(apart[1], 7U);                    // the first word of the second row
  EXPECT_EQ(apart[16], 1U);                   // the second one of the first
  EXPECT_EQ(apart[2 * 32 * 7], 2U * 32 * 7);  // where the last matrix begins
}

TEST(HalfScales, AreThereOnlyIfAllScalesAreFloat16) {
  std::vector<float> scales(5000, 0.25f);
  scales[4999] = 1.0f / (1 << 24);  // the least subnormal number
  EXPECT_EQ(HalfScales(scales.data(), 5000).size(), 5000U);
  for (const float other :
       {0.1f, 65520.0f, 1.0f / (1 << 25), std::numeric_limits<float>::quiet_NaN()}) {
    scales[4999] = other;
    EXPECT_TRUE(HalfScales(scales.data(), 5000).empty()) << other;
  }
}

TEST(NBitsInt8, GatedProductIsThatOfBothProducts) {
  const Weight gate = MakeWeight(4, 160, 130, 32, Zeros::kNone);
  const Weight up = MakeWeight(4, 160, 130, 32, Zeros::kCodes);
  for (int64_t m : {1, 3, 40}) {
    const std::vector<float> x = RandomFloats(m * 160, 8);
    const RowsView rows{x.data(), m, 160};
    const std::vector<float> g = Multiply(rows, gate.view), u = Multiply(rows, up.view);
    std::vector<float> want(g.size());
    for (int64_t r = 0; r < m; ++r) {
      GatedProduct(Activation::kGeluTanh, g.data() + r * 130, u.data() + r * 130, 130,
                   want.data() + r * 130);
    }
    std::vector<float> y(g.size());
    const OwnedLanes gates(gate.view), ups(up.view);
    std::vector<char> scratch(NBitsInt8ScratchBytes(m, gates.view()) + 64);
    GatedLinearNBitsInt8(rows, {gates.view(), ups.view(), Activation::kGeluTanh}, scratch.data(),
                         {y.data(), 130});
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], want[i], 1e-6 * std::abs(want[i]));
  }
}

}  // namespace
}  // namespace pagefuse
