// SPDX-License-Identifier: Apache-2.0
// Conversions of the decode kernels over every code.
#include "pagefuse/ops/kernels/cuda/convert.h"

#include <array>

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

}  // namespace
}  // namespace pagefuse::cuda
