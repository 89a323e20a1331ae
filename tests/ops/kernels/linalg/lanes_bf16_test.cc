// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/lanes_bf16.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "linear_support.h"
#include "nbits_support.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/scratch.h"

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

constexpr int64_t kDepth = PackedBf16::kBlockRows, kColumns = PackedBf16::kBlockColumns;

// All of a weight, blocks of a group one behind the other: what PackedBf16 takes for rows [n, k].
hwy::AlignedFreeUniquePtr<uint16_t[]> Decoded(const NBitsLanes& w) {
  const int64_t k_blocks = (w.k + kDepth - 1) / kDepth;
  auto words = hwy::AllocateAligned<uint16_t>(PackedBf16::Words(w.k, w.n));
  for (int64_t group = 0; group < w.groups(); ++group) {
    uint16_t* to = words.get() + group * k_blocks * PackedBf16::kBlockWords;
    // In two parts where there are two.
    const int64_t first = k_blocks / 2;
    DecodeToBf16Blocks(w, group, 0, first, to);
    DecodeToBf16Blocks(w, group, first, k_blocks - first, to + first * PackedBf16::kBlockWords);
  }
  return words;
}

// To the nearest bfloat16, halves away from 0.
uint16_t Rounded(double x) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(static_cast<float>(x)) + 0x8000U) >> 16);
}

TEST(LanesBf16, DecodesEveryElementOnEveryTarget) {
  for (const int bits : {4, 8}) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE("bits " + std::to_string(bits) + " k " + std::to_string(s.k) + " n " +
                   std::to_string(s.n) + " block " + std::to_string(s.block));
      const Weight weight = MakeWeight(bits, s.k, s.n, s.block, s.zeros);
      const OwnedLanes lanes(weight.view);
      ForEachSimdTarget([&] {
        const auto words = Decoded(lanes.view());
        const PackedBf16 packed(words.get(), s.k, s.n);
        std::vector<uint16_t> row(static_cast<size_t>(s.k));
        for (int64_t n = 0; n < s.n; ++n) {
          packed.CopyColumn(n, row.data());
          for (int64_t k = 0; k < s.k; ++k) {
            ASSERT_EQ(row[k], Rounded(ElementOf(weight.view, n, k))) << n << ", " << k;
          }
        }
      });
    }
  }
}

TEST(LanesBf16, ScalesThatAreNoNumbersStayNone) {
  Weight weight = MakeWeight(8, 32, 16, 32, Zeros::kNone);
  weight.scales[3] = std::numeric_limits<float>::quiet_NaN();
  const OwnedLanes lanes(weight.view);
  ForEachSimdTarget([&] {
    const auto words = Decoded(lanes.view());
    std::vector<uint16_t> row(32);
    for (int64_t n = 0; n < 16; ++n) {
      PackedBf16(words.get(), 32, 16).CopyColumn(n, row.data());
      for (const uint16_t word : row) {
        ASSERT_EQ(std::isnan(std::bit_cast<float>(uint32_t{word} << 16)), n == 3);
      }
    }
  });
}

std::vector<float> Multiply(const RowsView& x, const NBitsLanes& w) {
  Scratch scratch;
  std::vector<float> y(static_cast<size_t>(x.m * w.n));
  LinearCodesBf16(x, w, scratch.Get(LinearBf16ScratchBytes(x.m, w.k)), {y.data(), w.n});
  return y;
}

// k of one part, and of several; rows of one tile, of two, and of several items.
TEST(LinearCodesBf16, IsTheProductWithTheDecodedBlocks) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{300, 67}, {1400, 50}}) {
    for (const int bits : {4, 8}) {
      const Weight weight = MakeWeight(bits, k, n, 32, bits == 4 ? Zeros::kCodes : Zeros::kNone);
      const Weight other = MakeWeight(bits, k, n, 32, Zeros::kFloats);
      const OwnedLanes lanes(weight.view), up(other.view);
      const std::vector<float> x = RandomFloats(550 * k, 3);
      testing::ForEachBf16Unit([&] {
        if (!ReadsCodesAsBf16()) return;
        const auto words = Decoded(lanes.view()), up_words = Decoded(up.view());
        const PackedBf16 packed(words.get(), k, n), gated(words.get(), up_words.get(), k, n);
        for (const int64_t m : {1, 16, 17, 32, 33, 550}) {
          if (m == 550 && n != 50) continue;
          const RowsView rows{x.data(), m, k};
          Scratch scratch;
          void* memory = scratch.Get(LinearBf16ScratchBytes(m, k));
          std::vector<float> want(static_cast<size_t>(m * n)), got(want);
          LinearBf16(rows, packed, memory, {want.data(), n});
          EXPECT_EQ(Multiply(rows, lanes.view()), want) << "m " << m;
          GatedLinearBf16(rows, gated, Activation::kGeluTanh, memory, {want.data(), n});
          GatedLinearCodesBf16(rows, lanes.view(), up.view(), Activation::kGeluTanh, memory,
                               {got.data(), n});
          EXPECT_EQ(got, want) << "m " << m;
        }
      });
    }
  }
}

// Against products in double: rounding both sides to bfloat16 loses less than rounding x to int8.
TEST(LinearCodesBf16, IsNearerToTheProductThanIntegersAre) {
  constexpr int64_t kK = 1152, kN = 48, kM = 20;
  for (const int bits : {4, 8}) {
    Weight weight = MakeWeight(bits, kK, kN, 32, Zeros::kNone);
    const std::vector<float> scales = RandomFloats(kN * kK / 32, 4);
    for (size_t i = 0; i < scales.size(); ++i) weight.scales[i] = std::abs(scales[i]);
    const OwnedLanes lanes(weight.view);
    const std::vector<float> x = RandomFloats(kM * kK, 5);
    const auto error = [&](const std::vector<float>& y) {
      double sum = 0;
      for (int64_t i = 0; i < kM * kN; ++i) {
        double want = 0;
        for (int64_t k = 0; k < kK; ++k) {
          want += x[i / kN * kK + k] * ElementOf(weight.view, i % kN, k);
        }
        sum += (y[i] - want) * (y[i] - want);
      }
      return std::sqrt(sum);
    };
    Scratch scratch;
    std::vector<float> integers(kM * kN);
    LinearNBitsInt8({x.data(), kM, kK}, lanes.view(),
                    scratch.Get(NBitsInt8ScratchBytes(kM, lanes.view())), {integers.data(), kN});
    testing::ForEachBf16Unit([&] {
      if (!ReadsCodesAsBf16()) return;
      EXPECT_LT(error(Multiply({x.data(), kM, kK}, lanes.view())), error(integers));
    });
  }
}

}  // namespace
}  // namespace pagefuse
