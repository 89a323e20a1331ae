// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

using testing::ForEachSimdTarget;
using testing::RandomFloats;

constexpr float kGuard = 12345.0f;

enum class Zeros { kNone, kCodes, kFloats };

// A weight with the memory that it lies in.
struct Weight {
  std::vector<uint8_t> codes, zero_codes;
  std::vector<float> scales, zeros;
  NBitsWeight view;
};

Weight MakeWeight(int bits, int64_t k, int64_t n, int64_t block, Zeros zeros) {
  Weight w;
  NBitsWeight& v = w.view;
  v.bits = bits;
  v.k = k;
  v.n = n;
  v.block = block;
  v.row_bytes = v.blocks() * block * bits / 8;
  v.zero_row_bytes = (v.blocks() * bits + 7) / 8;
  std::mt19937 random(static_cast<uint32_t>(k * 31 + n * 7 + bits));
  const auto bytes = [&](int64_t count) {
    std::vector<uint8_t> made(static_cast<size_t>(count));
    for (uint8_t& byte : made) byte = static_cast<uint8_t>(random());
    return made;
  };
  w.codes = bytes(n * v.row_bytes);
  for (int64_t i = 0; i < n * v.blocks(); ++i) {
    w.scales.push_back(static_cast<float>(1 + random() % 2));
    w.zeros.push_back(static_cast<float>(random() % (1 << bits)));
  }
  w.zero_codes = bytes(n * v.zero_row_bytes);
  v.codes = w.codes.data();
  v.scales = w.scales.data();
  if (zeros == Zeros::kCodes) v.zero_codes = w.zero_codes.data();
  if (zeros == Zeros::kFloats) v.zeros = w.zeros.data();
  return w;
}

double ElementOf(const NBitsWeight& w, int64_t row, int64_t column) {
  const int64_t b = column / w.block;
  return (w.Code(row, column) - static_cast<double>(w.Zero(row, b))) *
         w.scales[row * w.blocks() + b];
}

std::vector<float> Multiply(const RowsView& x, const NBitsWeight& w) {
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

struct Sizes {
  int64_t k, n, block;
  Zeros zeros = Zeros::kNone;
};
const Sizes kSizes[] = {{32, 1, 32},
                        {31, 3, 32},
                        {96, 5, 32, Zeros::kCodes},
                        {128, 19, 32},
                        {160, 66, 32, Zeros::kFloats},
                        {250, 130, 64},
                        {288, 33, 128, Zeros::kCodes},
                        {300, 9, 1024}};
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
  ForEachSimdTarget([&] {
    for (int64_t m : kRows) {
      const std::vector<float> y = Multiply({x.data(), m, w.k}, w);
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

TEST(NBitsInt8, ScalesInHalvesGiveTheSameBits) {
  for (int bits : {4, 8}) {
    for (const Sizes& s : kSizes) {
      Weight weight = MakeWeight(bits, s.k, s.n, s.block, s.zeros);
      for (size_t i = 0; i < weight.scales.size(); ++i) {
        weight.scales[i] = static_cast<float>(Float16(0.001f * static_cast<float>(i * 7 % 91)));
      }
      const std::vector<Float16> halves =
          HalfScales(weight.scales.data(), static_cast<int64_t>(weight.scales.size()));
      ASSERT_EQ(halves.size(), weight.scales.size());
      NBitsWeight with_halves = weight.view;
      with_halves.half_scales = halves.data();
      // The float ones are not read where there are the others.
      const std::vector<float> none(weight.scales.size(), 3.0f);
      if (s.zeros == Zeros::kNone) with_halves.scales = none.data();
      const std::vector<float> x = RandomFloats(3 * s.k, 9);
      ForEachSimdTarget([&] {
        for (int64_t m : {1, 3}) {
          EXPECT_EQ(Multiply({x.data(), m, s.k}, with_halves),
                    Multiply({x.data(), m, s.k}, weight.view));
        }
      });
    }
  }
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
    std::vector<char> scratch(NBitsInt8ScratchBytes(m, gate.view) + 64);
    GatedLinearNBitsInt8(rows, {gate.view, up.view, Activation::kGeluTanh}, scratch.data(),
                         {y.data(), 130});
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], want[i], 1e-6 * std::abs(want[i]));
  }
}

}  // namespace
}  // namespace pagefuse
