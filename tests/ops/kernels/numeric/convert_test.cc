// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/numeric/convert.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

// Floats around every border of every format: each number of each type, the halves between
// neighbours, the floats beside them, and random bit patterns (NaN, infinities and subnormals among
// them).
template <typename T>
std::vector<float> BorderValues() {
  std::vector<float> values;
  const float infinity = std::numeric_limits<float>::infinity();
  float previous = 0;
  for (int code = 0; code < 1 << (8 * sizeof(T) - 1); ++code) {
    const auto x = static_cast<float>(T::FromBits(static_cast<typename T::Storage>(code)));
    const float middle = previous + (x - previous) / 2;
    for (const float y :
         {x, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, infinity)}) {
      values.push_back(y);
      values.push_back(-y);
    }
    previous = x;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 4099; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return values;
}

template <typename T>
class ConvertTest : public ::testing::Test {};
using Types = ::testing::Types<Float16, Bfloat16, Float8E4M3FN, Float8E5M2>;
TYPED_TEST_SUITE(ConvertTest, Types);

TYPED_TEST(ConvertTest, EncodesAsTheScalarOnEveryTarget) {
  using T = TypeParam;
  const std::vector<float> values = BorderValues<T>();
  testing::ForEachSimdTarget([&] {
    std::vector<T> got(values.size());
    ASSERT_TRUE(EncodeFromFloat(DataTypeOf<T>, values.data(), values.size(), got.data()).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(got[i].bits, T(values[i]).bits) << "at " << i << " for " << values[i];
    }
  });
}

TYPED_TEST(ConvertTest, DecodesAsTheScalarOnEveryTarget) {
  using T = TypeParam;
  std::vector<T> codes;
  for (int code = 0; code < 1 << (8 * sizeof(T)); ++code) {
    codes.push_back(T::FromBits(static_cast<typename T::Storage>(code)));
  }
  testing::ForEachSimdTarget([&] {
    std::vector<float> got(codes.size());
    ASSERT_TRUE(DecodeToFloat(DataTypeOf<T>, codes.data(), codes.size(), got.data()).ok());
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto expected = static_cast<float>(codes[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(got[i])) << "code " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected))
            << "code " << i;
      }
    }
  });
}

TYPED_TEST(ConvertTest, WritesNothingPastAnOddCountAtAnOddAddress) {
  using T = TypeParam;
  testing::ForEachSimdTarget([&] {
    for (int count = 0; count < 140; ++count) {
      std::vector<float> values(count, 1.5f);
      std::vector<unsigned char> bytes(count * sizeof(T) + 65, 0xA5);
      ASSERT_TRUE(
          EncodeFromFloat(DataTypeOf<T>, values.data(), count, bytes.data() + sizeof(T)).ok());
      for (size_t i = 0; i < sizeof(T); ++i) ASSERT_EQ(bytes[i], 0xA5);
      for (size_t i = (count + 1) * sizeof(T); i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], 0xA5) << i;
    }
  });
}

TEST(Convert, DecodesIntegersOfEverySign) {
  const std::vector<int8_t> codes = {-128, -1, 0, 1, 127};
  testing::ForEachSimdTarget([&] {
    std::vector<float> got(5);
    ASSERT_TRUE(DecodeToFloat(DataType::kInt8, codes.data(), 5, got.data()).ok());
    EXPECT_EQ(got, (std::vector<float>{-128, -1, 0, 1, 127}));
    ASSERT_TRUE(DecodeToFloat(DataType::kUint8, codes.data(), 5, got.data()).ok());
    EXPECT_EQ(got, (std::vector<float>{128, 255, 0, 1, 127}));
  });
}

TEST(Convert, PacksFourBitTypesLowNibbleFirst) {
  const std::vector<float> values = {1, -8, 7, 20, -3};
  std::vector<uint8_t> bytes(3, 0xFF);
  ASSERT_TRUE(EncodeFromFloat(DataType::kInt4, values.data(), 5, bytes.data()).ok());
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0x81, 0x77, 0x0D}));
  std::vector<double> back(5);
  ASSERT_TRUE(DecodeToDouble(DataType::kInt4, bytes.data(), 5, back.data()).ok());
  EXPECT_EQ(back, (std::vector<double>{1, -8, 7, 7, -3}));
  ASSERT_TRUE(EncodeFromFloat(DataType::kFloat4E2M1, values.data(), 5, bytes.data()).ok());
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0xF2, 0x77, 0x0D}));
}

TEST(Convert, RefusesStrings) {
  double value = 0;
  EXPECT_EQ(DecodeToDouble(DataType::kString, nullptr, 0, &value).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(Packing, LaysThreeBitsOutAsALittleEndianStream) {
  const std::vector<uint8_t> codes = {1, 2, 3, 4, 5, 6, 7, 0, 7, 1};
  std::vector<uint8_t> packed(PackedBytes(10, 3));
  PackBits<3>(codes.data(), 10, packed.data());
  uint32_t word = 0;
  for (int i = 0; i < 10; ++i) word |= static_cast<uint32_t>(codes[i]) << (3 * i);
  EXPECT_EQ(packed, (std::vector<uint8_t>{
                        static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8),
                        static_cast<uint8_t>(word >> 16), static_cast<uint8_t>(word >> 24)}));
  std::vector<uint8_t> back(10);
  UnpackBits<3>(packed.data(), 10, back.data());
  EXPECT_EQ(back, codes);
}

TEST(Packing, EveryNibblePairComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t packed = static_cast<uint8_t>(byte);
    uint8_t codes[2];
    UnpackBits<4>(&packed, 2, codes);
    EXPECT_EQ(codes[0], byte % 16);
    EXPECT_EQ(codes[1], byte / 16);
    EXPECT_EQ(GetNibble(&packed, 1), codes[1]);
    uint8_t again = 0xFF;
    SetNibble(&again, 0, codes[0]);
    SetNibble(&again, 1, codes[1]);
    EXPECT_EQ(again, packed);
  }
  EXPECT_EQ(SignExtendNibble(8), -8);
  EXPECT_EQ(SignExtendNibble(7), 7);
}

}  // namespace
}  // namespace pagefuse
