// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

using testing::Bf16Dot;
using testing::ForEachSimdTarget;
using testing::RandomFloats;

constexpr float kGuard = 12345.0f;

struct Sizes {
  int64_t k;
  int64_t n;
  bool transposed;
};
const Sizes kSizes[] = {{1, 1, false},     {31, 15, true},   {32, 16, false}, {33, 17, true},
                        {64, 40, false},   {97, 70, false},  {65, 33, true},  {1152, 48, false},
                        {300, 131, false}, {1321, 70, false}};  // k in chunks
const int64_t kRows[] = {1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 48, 49, 64, 70};

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<void, Free>;

AlignedBytes AllocateScratch(size_t bytes) {
  return AlignedBytes(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
}

// A packed matrix with its memory.
struct Packed {
  explicit Packed(const WeightView& weight)
      : rows(weight.k * weight.n),
        words(static_cast<uint16_t*>(
            std::aligned_alloc(64, PackedBf16::Words(weight.k, weight.n) * sizeof(uint16_t) + 64))),
        matrix(words.get(), weight.k, weight.n) {
    RoundToRows(weight, rows.data());
    PackedBf16::Pack({.words = rows.data(), .n = weight.n, .k = weight.k}, words.get());
  }

  std::vector<uint16_t> rows;
  std::unique_ptr<uint16_t, Free> words;
  PackedBf16 matrix;
};

// y [m, n] with a guard column behind each row, which must stay.
std::vector<float> Multiply(const RowsView& x, const PackedBf16& w) {
  const AlignedBytes scratch = AllocateScratch(LinearBf16ScratchBytes(x.m, w.k()));
  std::vector<float> y(x.m * (w.n() + 1), kGuard);
  LinearBf16(x, w, scratch.get(), {y.data(), w.n() + 1});
  std::vector<float> result;
  for (int64_t r = 0; r < x.m; ++r) {
    EXPECT_EQ(y[r * (w.n() + 1) + w.n()], kGuard);
    result.insert(result.end(), y.begin() + r * (w.n() + 1), y.begin() + (r + 1) * (w.n() + 1) - 1);
  }
  return result;
}

TEST(LinearBf16, GivesTheDefinedBitsForEveryShapeAndImplementation) {
  for (const Sizes& s : kSizes) {
    const std::vector<float> weights = RandomFloats(s.k * s.n, 1);
    const WeightView w{weights.data(), s.k, s.n, s.transposed};
    const std::vector<float> x = RandomFloats(70 * (s.k + 3), 2);
    ForEachSimdTarget([&] {
      std::vector<float> expected;
      for (int64_t r = 0; r < 70; ++r) {
        for (int64_t c = 0; c < s.n; ++c) expected.push_back(Bf16Dot(&x[r * (s.k + 3)], w, c));
      }
      const Packed packed(w);
      for (int64_t m : kRows) {
        const std::vector<float> y = Multiply({x.data(), m, s.k + 3}, packed.matrix);
        const std::vector<float> want(expected.begin(), expected.begin() + m * s.n);
        ASSERT_EQ(y, want) << "m " << m << " k " << s.k << " n " << s.n;
      }
    });
  }
}

// Several parts of rows and of columns, k in chunks with a shorter last one: every row is what it
// is alone.
TEST(LinearBf16, RowsDoNotDependOnTheirNumber) {
  constexpr int64_t kK = 1321;
  constexpr int64_t kN = 600;
  constexpr int64_t kM = 1100;
  const std::vector<float> weights = RandomFloats(kK * kN, 5);
  const std::vector<float> x = RandomFloats(kM * kK, 6);
  const Packed packed(WeightView{weights.data(), kK, kN, false});
  ForEachSimdTarget([&] {
    const std::vector<float> all = Multiply({x.data(), kM, kK}, packed.matrix);
    for (int64_t row : {0, 15, 16, 511, 512, 1023, 1024, 1099}) {
      const std::vector<float> one = Multiply({x.data() + row * kK, 1, kK}, packed.matrix);
      const std::vector<float> same(all.begin() + row * kN, all.begin() + (row + 1) * kN);
      EXPECT_EQ(same, one) << row;
    }
  });
}

TEST(LinearBf16, RowsDoNotDependOnThreads) {
  ThreadPool alone(1), two(2);
  const std::vector<float> weights = RandomFloats(200 * 150, 3);
  const std::vector<float> x = RandomFloats(50 * 200, 4);
  const Packed packed(WeightView{weights.data(), 200, 150, false});
  ForEachSimdTarget([&] {
    for (int64_t m : {1, 50}) {
      const auto multiply = [&](ThreadPool& pool) {
        const ScopedWorkerPool scope(&pool);
        return Multiply({x.data(), m, 200}, packed.matrix);
      };
      EXPECT_EQ(multiply(two), multiply(alone));
    }
  });
}

TEST(LinearBf16, EmptyProductsWriteNothingOrZeros) {
  const Packed no_rows(WeightView{nullptr, 0, 3, false});
  EXPECT_EQ(Multiply({nullptr, 2, 0}, no_rows.matrix), std::vector<float>(6, 0.0f));
  const float weights[2] = {1, 2};
  const Packed packed(WeightView{weights, 2, 1, false});
  EXPECT_TRUE(Multiply({nullptr, 0, 2}, packed.matrix).empty());
}

TEST(LinearBf16, NansAndInfinitiesPassThrough) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> weights = {1, 1, 1, 1};
  const Packed packed(WeightView{weights.data(), 2, 2, false});
  ForEachSimdTarget([&] {
    // A NaN whose payload would carry into infinity when rounded.
    const uint32_t bits = 0x7F80FFFF;
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    const std::vector<float> x = {nan, 1, inf, 1, 1, 1};
    const std::vector<float> y = Multiply({x.data(), 3, 2}, packed.matrix);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], inf);
    EXPECT_EQ(y[4], 2.0f);
  });
}

TEST(GatedLinearBf16, IsTheProductOfBothPartsForEveryShapeAndImplementation) {
  for (const Sizes& s :
       {Sizes{33, 17, false}, Sizes{64, 80, true}, Sizes{40, 1, false}, Sizes{1321, 50, false}}) {
    const std::vector<float> gate_weights = RandomFloats(s.k * s.n, 5);
    const std::vector<float> up_weights = RandomFloats(s.k * s.n, 6);
    const WeightView gate{gate_weights.data(), s.k, s.n, s.transposed};
    const WeightView up{up_weights.data(), s.k, s.n, s.transposed};
    std::vector<float> x = RandomFloats(70 * s.k, 7);
    // Gates of the same size for every k: far out the exponent's rounding shows.
    for (float& v : x) v *= 1.6f / std::sqrt(static_cast<float>(s.k));
    ForEachSimdTarget([&] {
      const Packed gate_blocks(gate), up_blocks(up);
      const PackedBf16 packed(gate_blocks.words.get(), up_blocks.words.get(), s.k, s.n);
      for (int64_t m : kRows) {
        std::vector<float> y(m * s.n);
        const AlignedBytes scratch = AllocateScratch(LinearBf16ScratchBytes(m, s.k));
        GatedLinearBf16({x.data(), m, s.k}, packed, Activation::kGeluTanh, scratch.get(),
                        {y.data(), s.n});
        for (int64_t i = 0; i < m * s.n; ++i) {
          const float* row = &x[i / s.n * s.k];
          const double want = ApplyActivation(Activation::kGeluTanh, Bf16Dot(row, gate, i % s.n)) *
                              Bf16Dot(row, up, i % s.n);
          ASSERT_NEAR(y[i], want, 1e-5 * std::abs(want) + 1e-30) << "m " << m << " i " << i;
        }
      }
    });
  }
}

TEST(PackedBf16, ReleasesEveryWordOfTheRowsOnce) {
  const std::vector<uint16_t> rows(3 * 50 * 70, 1);
  std::vector<uint16_t> words(3 * PackedBf16::Words(70, 50));
  std::vector<int> released(rows.size());
  PackedBf16::Pack({.words = rows.data(), .count = 3, .n = 50, .k = 70}, words.data(),
                   [&](const uint16_t* begin, int64_t count) {
                     for (int64_t i = 0; i < count; ++i) ++released[begin - rows.data() + i];
                   });
  EXPECT_EQ(released, std::vector<int>(rows.size(), 1));
}

TEST(PackedBf16, HasEachElementAtItsPlaceAndGivesRowsBack) {
  for (const Sizes& s : kSizes) {
    std::vector<uint16_t> rows(2 * s.n * s.k);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i * 7 + 1);
    std::vector<uint16_t> words(2 * PackedBf16::Words(s.k, s.n), 1);
    PackedBf16::Pack({.words = rows.data(), .count = 2, .n = s.n, .k = s.k}, words.data());
    const PackedBf16 second(words.data() + PackedBf16::Words(s.k, s.n), s.k, s.n);
    std::vector<uint16_t> row(s.k);
    for (int64_t n = 0; n < s.n; ++n) {
      const uint16_t* expected = rows.data() + (s.n + n) * s.k;
      for (int64_t k = 0; k < s.k; ++k) {
        const uint16_t* blocks = second.column_block(n / 16);
        ASSERT_EQ(blocks[k / 32 * 512 + k % 32 / 2 * 32 + n % 16 * 2 + k % 2], expected[k]);
      }
      second.CopyColumn(n, row.data());
      ASSERT_EQ(row, std::vector<uint16_t>(expected, expected + s.k));
    }
  }
}

TEST(PackedBf16, PacksWholeBlocksWhereTheyLie) {
  std::vector<uint16_t> rows(2 * 48 * 96);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  std::vector<uint16_t> apart(rows.size());
  const PackedBf16::Rows matrices{.words = rows.data(), .count = 2, .n = 48, .k = 96};
  PackedBf16::Pack(matrices, apart.data());
  PackedBf16::Pack(matrices, rows.data());
  EXPECT_EQ(rows, apart);
}

TEST(RoundToRows, RoundsBothOrdersAndReleasesEachElementOnce) {
  for (const Sizes& s : kSizes) {
    const std::vector<float> weights = RandomFloats(s.k * s.n, 8);
    for (const bool transposed : {false, true}) {
      const WeightView view{weights.data(), s.k, s.n, transposed};
      std::vector<uint16_t> rows(weights.size());
      std::vector<int> released(weights.size());
      RoundToRows(view, rows.data(), [&](const float* begin, int64_t count) {
        for (int64_t i = 0; i < count; ++i) ++released[begin - weights.data() + i];
      });
      EXPECT_EQ(released, std::vector<int>(weights.size(), 1));
      for (int64_t i = 0; i < s.k * s.n; ++i) {
        const double weight = testing::WeightAt(view, i % s.k, i / s.k);
        const float rounded = testing::RoundToBfloat16(static_cast<float>(weight));
        ASSERT_EQ(static_cast<float>(Bfloat16::FromBits(rows[i])), rounded) << i;
      }
    }
  }
}

}  // namespace
}  // namespace pagefuse
