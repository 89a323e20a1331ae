#include "pagefuse/ops/kernels/linalg/linear_bf16.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "must.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

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
      const auto packed = Must(PackedBf16::Pack(w));
      for (int64_t m : kRows) {
        const std::vector<float> y = Multiply({x.data(), m, s.k + 3}, packed);
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
  const auto packed = Must(PackedBf16::Pack({weights.data(), kK, kN, false}));
  ForEachSimdTarget([&] {
    const std::vector<float> all = Multiply({x.data(), kM, kK}, packed);
    for (int64_t row : {0, 15, 16, 511, 512, 1023, 1024, 1099}) {
      const std::vector<float> one = Multiply({x.data() + row * kK, 1, kK}, packed);
      const std::vector<float> same(all.begin() + row * kN, all.begin() + (row + 1) * kN);
      EXPECT_EQ(same, one) << row;
    }
  });
}

TEST(LinearBf16, RowsDoNotDependOnThreads) {
  ThreadPool alone(1), two(2);
  const std::vector<float> weights = RandomFloats(200 * 150, 3);
  const std::vector<float> x = RandomFloats(50 * 200, 4);
  const auto packed = Must(PackedBf16::Pack({weights.data(), 200, 150, false}));
  ForEachSimdTarget([&] {
    for (int64_t m : {1, 50}) {
      const auto multiply = [&](ThreadPool& pool) {
        const ScopedWorkerPool scope(&pool);
        return Multiply({x.data(), m, 200}, packed);
      };
      EXPECT_EQ(multiply(two), multiply(alone));
    }
  });
}

TEST(LinearBf16, EmptyProductsWriteNothingOrZeros) {
  const auto no_rows = Must(PackedBf16::Pack({nullptr, 0, 3, false}));
  EXPECT_EQ(Multiply({nullptr, 2, 0}, no_rows), std::vector<float>(6, 0.0f));
  const float weights[2] = {1, 2};
  const auto packed = Must(PackedBf16::Pack({weights, 2, 1, false}));
  EXPECT_TRUE(Multiply({nullptr, 0, 2}, packed).empty());
}

TEST(LinearBf16, NansAndInfinitiesPassThrough) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> weights = {1, 1, 1, 1};
  const auto packed = Must(PackedBf16::Pack({weights.data(), 2, 2, false}));
  ForEachSimdTarget([&] {
    // A NaN whose payload would carry into infinity when rounded.
    const uint32_t bits = 0x7F80FFFF;
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    const std::vector<float> x = {nan, 1, inf, 1, 1, 1};
    const std::vector<float> y = Multiply({x.data(), 3, 2}, packed);
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
      const auto packed = Must(PackedBf16::PackGated(gate, up));
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

TEST(PackedBf16, ReleasesEverySourceElementOnce) {
  for (bool transposed : {false, true}) {
    const std::vector<float> weights = RandomFloats(70 * 50, 8);
    std::vector<int> released(weights.size());
    Must(PackedBf16::Pack({weights.data(), 70, 50, transposed},
                          [&](const float* begin, int64_t count) {
                            for (int64_t i = 0; i < count; ++i) {
                              ++released[begin - weights.data() + i];
                            }
                          }));
    EXPECT_EQ(released, std::vector<int>(weights.size(), 1));
  }
}

}  // namespace
}  // namespace pagefuse
