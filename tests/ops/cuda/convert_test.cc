// SPDX-License-Identifier: Apache-2.0
// Conversions of the kernels, over every code and samples of all floats.
#include "pagefuse/ops/kernels/cuda/convert.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace pagefuse::cuda {
namespace {

float Half(uint32_t pair, int i) { return HalfToFloat(static_cast<uint16_t>(pair >> (16 * i))); }

// A word of four neighbouring codes from `code` on.
uint32_t WordFrom(int code) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>((code + i) & 0xFF) << (8 * i);
  return word;
}

template <class Widen, class Decode>
void ExpectAllCodes(const Widen& widen, const Decode& decode) {
  for (int code = 0; code < 256; ++code) {
    uint32_t low = 0, high = 0;
    widen(WordFrom(code), low, high);
    const std::array<float, 4> halves = {Half(low, 0), Half(low, 1), Half(high, 0), Half(high, 1)};
    for (int i = 0; i < 4; ++i) {
      const float expected = decode(static_cast<uint8_t>(code + i));
      if (expected == expected) {
        EXPECT_EQ(halves[i], expected) << "code " << (code + i) % 256;
      } else {
        EXPECT_NE(halves[i], halves[i]);
      }
    }
  }
}

TEST(Convert, BytePermuteTakesBytesOfBoth) {
  EXPECT_EQ(BytePermute(0x33221100u, 0x77665544u, 0x7362), 0x77336622u);
  EXPECT_EQ(BytePermute(0x33221100u, 0x77665544u, 0x5140), 0x55114400u);
  EXPECT_EQ(BytePermute(0x33221100u, 0x77665544u, 0x3210), 0x33221100u);
}

TEST(Convert, Int8CodesAreHalves) {
  ExpectAllCodes(WidenInt8,
                 [](uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); });
}

TEST(Convert, E4M3CodesAreHalves) {
  ExpectAllCodes(WidenE4m3, [](uint8_t code) { return DecodeFloat<E4M3FNFormat>(code); });
}

TEST(Convert, MaskedNibblesAreHalves) {
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t pair = code | code << 4 | code << 16 | code << 20;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Half(pair & kLowNibbles, i) * kLowNibbleUnit, static_cast<float>(code));
      EXPECT_EQ(Half(pair & kHighNibbles, i) * kHighNibbleUnit, static_cast<float>(code));
    }
  }
}

TEST(Convert, PairsHaveTheFirstInTheLowBits) {
  EXPECT_EQ(PackHalves(1.0f, -2.0f), 0xC0003C00u);
  EXPECT_EQ(PackBfloats(1.0f, -2.0f), 0xC0003F80u);
}

// --- numbers to codes ---

float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

// Far enough apart that a test looks at some of each exponent and sign.
constexpr uint32_t kBitsStep = 4099;

TEST(Convert, NumbersOfAtMostSixAreE2M1Codes) {
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 8 * kBitsStep) {
    float x[8];
    for (uint32_t i = 0; i < 8; ++i) {
      x[i] = FloatOf(static_cast<uint32_t>(bits) + i);
      if (!(std::fabs(x[i]) <= 6)) x[i] = std::copysign(6.0f, x[i]);
    }
    const uint32_t codes = PackE2m1(x);
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(codes >> (4 * i) & 15, EncodeFloat<E2M1Format>(x[i])) << x[i];
    }
  }
}

template <GroupCodes kCodes>
void ExpectPowerScales() {
  const GroupFormat format = {kCodes, GroupScale::kPowerOfTwo, 0};
  const uint32_t least = BitsOf(format.LargestCode() * 0x1p-126f);
  constexpr uint32_t kInfinity = 0x7F800000u;
  for (uint32_t bits = least; bits < kInfinity; bits += kBitsStep) {
    const uint32_t exponent = PowerScaleExponent<kCodes>(FloatOf(bits));
    ASSERT_EQ(exponent << 23, BitsOf(format.ScaleOf(FloatOf(bits)))) << FloatOf(bits);
  }
}

TEST(Convert, PowerScalesAreThoseOfGroups) {
  ExpectPowerScales<GroupCodes::kE4M3>();
  ExpectPowerScales<GroupCodes::kE2M1>();
}

TEST(Convert, QuickQuotientsAreQuotients) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    // Scales from 2^-60 to 2^60; some numbers are zeros or subnormals.
    const float scale =
        FloatOf((67 + static_cast<uint32_t>(random()) % 120) << 23 | (random() & 0x7FFFFFu));
    auto bits = static_cast<uint32_t>(random());
    if (i % 3 == 0) bits &= 0xFFFF0000u;
    if (i % 7 == 0) bits &= 0x807FFFFFu;
    if (i % 11 == 0) bits &= 0x80000000u;
    const float x = FloatOf(bits);
    if (!(std::fabs(x) / scale < 0x1p60f)) continue;
    const float quotient = QuickQuotient(x, scale, 1.0f / scale), expected = x / scale;
    if (std::fabs(expected) >= 0x1p-50f) {
      ASSERT_EQ(BitsOf(quotient), BitsOf(expected)) << x << " / " << scale;
    } else {
      ASSERT_EQ(EncodeFloat<E4M3FNFormat>(quotient), EncodeFloat<E4M3FNFormat>(expected))
          << x << " / " << scale;
    }
  }
}

}  // namespace
}  // namespace pagefuse::cuda
