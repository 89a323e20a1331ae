// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_quantise.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/linalg/nbits.h"

namespace pagefuse {
namespace {

using testing::ForEachSimdTarget;
using testing::RandomFloats;

struct Quantised {
  std::vector<int> codes;  // less the centre
  std::vector<float> scales;

  double At(size_t i) const { return codes[i] * static_cast<double>(scales[i / kWeightBlock]); }
};

Quantised Quantise(const std::vector<float>& w, int bits) {
  const auto blocks = static_cast<int64_t>(w.size()) / kWeightBlock;
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * kWeightBlock * bits / 8));
  Quantised result;
  result.scales.resize(static_cast<size_t>(blocks));
  QuantiseNBits(w.data(), blocks, bits,
                {bytes.data(), kWeightBlock * bits / 8, result.scales.data(), 1});
  for (size_t i = 0; i < w.size(); ++i) {
    result.codes.push_back(bits == 8 ? bytes[i] - 128 : (bytes[i / 2] >> (i % 2 * 4) & 15) - 8);
  }
  return result;
}

TEST(QuantiseNBits, NumbersOnTheGridStayWhatTheyAre) {
  for (const int bits : {4, 8}) {
    const int levels = 1 << (bits - 1);
    std::vector<float> w;
    for (int i = 0; i < 64; ++i)
      w.push_back(0.25f * static_cast<float>(i * 37 % levels - levels / 2));
    w[5] = -0.25f * static_cast<float>(levels);
    w[40] = 0.25f * static_cast<float>(levels);  // the extreme may be positive
    ForEachSimdTarget([&] {
      const Quantised q = Quantise(w, bits);
      for (size_t i = 0; i < w.size(); ++i) EXPECT_FLOAT_EQ(q.At(i), w[i]) << bits << " " << i;
    });
  }
}

TEST(QuantiseNBits, IsHalfAStepOffAtMost) {
  const std::vector<float> w = RandomFloats(64 * kWeightBlock, 3);
  for (const int bits : {4, 8}) {
    const int levels = 1 << (bits - 1);
    ForEachSimdTarget([&] {
      const Quantised q = Quantise(w, bits);
      for (size_t b = 0; b < w.size(); b += kWeightBlock) {
        float extreme = 0;
        for (size_t i = b; i < b + kWeightBlock; ++i) {
          if (std::abs(w[i]) > std::abs(extreme)) extreme = w[i];
        }
        // The step before it was fitted; a number of the other sign and almost the largest
        // magnitude is a step off, having no code.
        const double step = std::abs(extreme) / levels;
        for (size_t i = b; i < b + kWeightBlock; ++i) {
          const bool clipped = w[i] * extreme < 0 && std::abs(w[i]) > step * (levels - 0.5);
          const double off = std::abs(q.codes[i] * extreme / -levels - w[i]);
          EXPECT_LE(off, step * (clipped ? 1.0 : 0.5) * 1.0001);
        }
      }
    });
  }
}

TEST(QuantiseNBits, TheScaleIsThatOfTheLeastSquares) {
  const std::vector<float> w = RandomFloats(kWeightBlock, 4);
  ForEachSimdTarget([&] {
    Quantised q = Quantise(w, 4);
    const auto error = [&](float scale) {
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i) sum += std::pow(q.codes[i] * scale - w[i], 2);
      return sum;
    };
    EXPECT_LT(error(q.scales[0]), error(q.scales[0] * 1.001f));
    EXPECT_LT(error(q.scales[0]), error(q.scales[0] * 0.999f));
  });
}

TEST(QuantiseNBits, ScalesAreFloat16WhereThoseAreNormal) {
  for (const float unit : {1.0f, 3e-3f, 1e-9f, 1e9f}) {
    std::vector<float> w = RandomFloats(64 * kWeightBlock, 5);
    for (float& number : w) number *= unit;
    ForEachSimdTarget([&] {
      const Quantised q = Quantise(w, 4);
      const bool normal = unit == 1.0f || unit == 3e-3f;
      EXPECT_EQ(HalfScales(q.scales.data(), 64).empty(), !normal) << unit;
      // Those that no float16 holds are there as they are.
      for (const float scale : q.scales) EXPECT_GT(std::abs(scale), 0.01f * unit / 8);
    });
  }
}

TEST(QuantiseNBits, SaysWhereThereAreNoNumbers) {
  std::vector<float> w(4 * kWeightBlock, 1.0f);
  w[3] = std::numeric_limits<float>::quiet_NaN();
  w[kWeightBlock] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < kWeightBlock; ++i) {
    w[2 * kWeightBlock + i] = 0;
    w[3 * kWeightBlock + i] = std::numeric_limits<float>::denorm_min();
  }
  ForEachSimdTarget([&] {
    const Quantised q = Quantise(w, 8);
    EXPECT_TRUE(std::isnan(q.scales[0]));
    EXPECT_TRUE(std::isnan(q.scales[1]));
    EXPECT_EQ(q.scales[2], 0);
    EXPECT_EQ(q.scales[3], 0);
  });
}

}  // namespace
}  // namespace pagefuse
