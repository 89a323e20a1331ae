// SPDX-License-Identifier: Apache-2.0
// TurboQuant slots: the quantiser's levels, the layout, and what every code means.
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/numeric/packing.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

// Positive halves of the levels for each head size, to the last bit.
const std::map<int64_t, std::vector<float>> kThreeBits = {
    {64, {0.0306229498f, 0.0944556892f, 0.167897508f, 0.268793702f}},
    {80, {0.0273899976f, 0.0844837353f, 0.150172085f, 0.240416393f}},
    {96, {0.0250035338f, 0.0771227479f, 0.137087733f, 0.21946913f}},
    {128, {0.021653695f, 0.0667902604f, 0.118721463f, 0.190065846f}},
    {192, {0.0176801682f, 0.054534018f, 0.0969356671f, 0.155188113f}},
    {256, {0.0153114749f, 0.0472278446f, 0.0839487538f, 0.134396851f}}};
const std::map<int64_t, std::vector<float>> kFourBits = {
    {64,
     {0.0160534568f, 0.0485172234f, 0.0821099877f, 0.117806032f, 0.157032192f, 0.202235222f,
      0.258555889f, 0.341365278f}},
    {80,
     {0.014358649f, 0.0433951244f, 0.0734414086f, 0.10536892f, 0.14045386f, 0.180884674f,
      0.231259421f, 0.305326372f}},
    {96,
     {0.0131075932f, 0.0396141484f, 0.0670425296f, 0.0961882174f, 0.128216252f, 0.165124372f,
      0.211109996f, 0.278723568f}},
    {128,
     {0.011351509f, 0.0343068577f, 0.0580605306f, 0.0833014399f, 0.111038528f, 0.143001899f,
      0.182826623f, 0.241381705f}},
    {192,
     {0.00926846825f, 0.0280114319f, 0.0474062264f, 0.0680153444f, 0.0906625837f, 0.116760559f,
      0.149277315f, 0.197087333f}},
    {256,
     {0.00802672841f, 0.0242586117f, 0.0410549939f, 0.0589030161f, 0.0785160959f, 0.101117611f,
      0.129277945f, 0.170682639f}}};

void ExpectLevels(const std::map<int64_t, std::vector<float>>& expected, int bits) {
  for (const auto& [size, half] : expected) {
    const std::vector<float> levels = SolveCentroids(size, bits);
    ASSERT_EQ(levels.size(), 2 * half.size());
    for (size_t i = 0; i < half.size(); ++i) {
      EXPECT_EQ(levels[half.size() + i], half[i]) << "head size " << size << ", level " << i;
      EXPECT_EQ(levels[half.size() - 1 - i], -half[i]) << "head size " << size << ", level " << i;
    }
  }
}

TEST(TurboQuantCentroids, OfThreeBitsAreThePublishedOnes) { ExpectLevels(kThreeBits, 3); }
TEST(TurboQuantCentroids, OfFourBitsAreThePublishedOnes) { ExpectLevels(kFourBits, 4); }

TEST(TurboQuantCentroids, OfOtherHeadSizesAreTheSameLevelsScaled) {
  for (const int64_t size : {8, 40, 72, 512}) {
    for (const auto& [bits, table] : {std::pair{3, kThreeBits}, std::pair{4, kFourBits}}) {
      const std::vector<float> levels = SolveCentroids(size, bits);
      const std::vector<float>& half = table.at(128);
      const double factor = std::sqrt(128.0 / static_cast<double>(size));
      for (size_t i = 0; i < half.size(); ++i) {
        EXPECT_NEAR(levels[half.size() + i], half[i] * factor, 2e-6 * half[i] * factor);
      }
    }
  }
}

TEST(TurboQuantCentroids, AreSolvedOnceForAHeadSize) {
  EXPECT_EQ(DefaultCentroids(128, 4).data(), DefaultCentroids(128, 4).data());
  const std::vector<float> solved = SolveCentroids(128, 3);
  const auto kept = DefaultCentroids(128, 3);
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), solved.begin(), solved.end()));
}

TEST(TurboQuantFormat, SlotsOfThePresetsHaveThePublishedSizes) {
  const std::map<std::string_view, std::vector<int64_t>> sizes = {
      {"turboquant_k8v4", {100, 124, 148, 196, 292, 388}},
      {"turboquant_4bit_nc", {70, 86, 102, 134, 198, 262}},
      {"turboquant_k3v4_nc", {62, 76, 90, 118, 174, 230}},
      {"turboquant_3bit_nc", {54, 66, 78, 102, 150, 198}}};
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    const auto expected = sizes.find(preset.name);
    ASSERT_NE(expected, sizes.end()) << preset.name;
    size_t i = 0;
    for (const int64_t size : {64, 80, 96, 128, 192, 256}) {
      const TurboQuantFormat format{preset.key_bits, preset.value_bits, size};
      EXPECT_EQ(format.SlotBytes(), expected->second[i++]) << preset.name << " " << size;
      EXPECT_TRUE(CheckHeadSize(format).ok());
    }
  }
}

TEST(TurboQuantFormat, HeadSizesFillWholeBytes) {
  EXPECT_TRUE(CheckHeadSize({8, 4, 6}).ok());
  EXPECT_FALSE(CheckHeadSize({8, 4, 5}).ok());
  EXPECT_FALSE(CheckHeadSize({4, 3, 12}).ok());
  EXPECT_FALSE(CheckHeadSize({3, 4, 12}).ok());
  EXPECT_FALSE(CheckHeadSize({4, 4, 0}).ok());
}

// A slot whose codes are `code` everywhere, with the float16 2 as norm, 0.5 as scale, -3 as zero.
std::vector<uint8_t> SlotOf(const TurboQuantFormat& format, uint8_t code) {
  std::vector<uint8_t> slot(format.SlotBytes());
  const std::vector<uint8_t> codes(format.head_size, code);
  const auto pack = [&](int bits, uint8_t* to) {
    if (bits == 3) PackBits<3>(codes.data(), format.head_size, to);
    if (bits == 4) PackBits<4>(codes.data(), format.head_size, to);
    if (bits == 8) std::copy(codes.begin(), codes.end(), to);
  };
  pack(format.key_bits, slot.data());
  if (format.has_centroids()) slot[format.KeyDataBytes() + 1] = 0x40;
  uint8_t* value = slot.data() + format.KeyBytes();
  pack(format.value_bits, value);
  value[format.ValueDataBytes() + 1] = 0x38;
  value[format.ValueDataBytes() + 3] = 0xC2;
  return slot;
}

TEST(TurboQuantFormat, EveryKeyCodeIsItsCentroid) {
  for (const int bits : {3, 4}) {
    const TurboQuantFormat format{bits, 4, 16};
    const auto centroids = DefaultCentroids(16, bits);
    for (int code = 0; code < 1 << bits; ++code) {
      const std::vector<uint8_t> slot = SlotOf(format, static_cast<uint8_t>(code));
      std::vector<float> key(16);
      EXPECT_EQ(DecodeTurboQuantKey(format, centroids.data(), false, slot.data(), key.data()), 2);
      EXPECT_EQ(key, std::vector<float>(16, centroids[code]));
      DecodeTurboQuantKey(format, centroids.data(), true, slot.data(), key.data());
      const float unit = centroids[code] > 0 ? 0.25f : -0.25f;  // all alike: length 1 of 16
      for (const float x : key) EXPECT_NEAR(x, unit, 1e-7);
    }
  }
}

TEST(TurboQuantFormat, EveryEightBitKeyIsItsFloat8) {
  const TurboQuantFormat format{8, 4, 8};
  for (int code = 0; code < 256; ++code) {
    const std::vector<uint8_t> slot = SlotOf(format, static_cast<uint8_t>(code));
    std::vector<float> key(8);
    EXPECT_EQ(DecodeTurboQuantKey(format, nullptr, false, slot.data(), key.data()), 1);
    const float expected = DecodeFloat<E4M3FNFormat>(static_cast<uint8_t>(code));
    for (const float x : key) EXPECT_TRUE(x == expected || (std::isnan(x) && code % 128 == 127));
  }
}

TEST(TurboQuantFormat, EveryValueCodeIsItsStep) {
  for (const int bits : {3, 4}) {
    const TurboQuantFormat format{4, bits, 16};
    for (int code = 0; code < 1 << bits; ++code) {
      const std::vector<uint8_t> slot = SlotOf(format, static_cast<uint8_t>(code));
      std::vector<float> value(16);
      DecodeTurboQuantValue(format, slot.data(), value.data());
      EXPECT_EQ(value, std::vector<float>(16, static_cast<float>(code) * 0.5f - 3));
    }
  }
}

TEST(TurboQuantFormat, RowsComeBackAsNearAsTheirCodesAllow) {
  const TurboQuantFormat format{4, 4, 128};
  const TurboQuantTables tables{nullptr, DefaultCentroids(128, 4).data()};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(128);
  for (float& v : x) v = normal(random);
  std::vector<uint8_t> slot(format.SlotBytes());
  EncodeTurboQuantKey(format, tables, x.data(), slot.data());
  EncodeTurboQuantValue(format, x.data(), slot.data());
  std::vector<float> rotated(128), key(128), value(128);
  const float norm =
      DecodeTurboQuantKey(format, tables.centroids, true, slot.data(), rotated.data());
  RotateTurboQuant(nullptr, rotated.data(), 128, key.data());  // its own inverse
  DecodeTurboQuantValue(format, slot.data(), value.data());
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  double error = 0;
  for (int d = 0; d < 128; ++d) {
    error += std::pow(key[d] * norm - x[d], 2);
    EXPECT_NEAR(value[d], x[d], (*high - *low) / 15 * 0.505);
  }
  EXPECT_LT(std::sqrt(error) / norm, 0.12);  // of a Gaussian row: 0.097
}

TEST(TurboQuantFormat, ZeroAndConstantRowsComeBackExactly) {
  const TurboQuantFormat format{3, 3, 8};
  const TurboQuantTables tables{nullptr, DefaultCentroids(8, 3).data()};
  std::vector<uint8_t> slot(format.SlotBytes());
  EncodeTurboQuantKey(format, tables, std::vector<float>(8, 0).data(), slot.data());
  EncodeTurboQuantValue(format, std::vector<float>(8, -1.5f).data(), slot.data());
  // The tie at 0 goes up.
  EXPECT_EQ(std::vector<uint8_t>(slot.begin(), slot.begin() + 5),
            (std::vector<uint8_t>{0x24, 0x49, 0x92, 0, 0}));
  std::vector<float> value(8);
  DecodeTurboQuantValue(format, slot.data(), value.data());
  EXPECT_EQ(value, std::vector<float>(8, -1.5f));
}

}  // namespace
}  // namespace pagefuse
