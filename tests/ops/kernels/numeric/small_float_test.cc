// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/numeric/small_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse {
namespace {

// What the format's document says, apart from the code under test.
struct Definition {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  bool infinity;       // the top exponent with mantissa 0
  int nan_count;       // codes of NaN among the positive ones
  bool unsigned_zero;  // the code of -0 is NaN
};

// The number of a positive code, from sign, exponent and mantissa; NaN past the last number.
double Value(const Definition& d, int code) {
  const int top = (1 << (d.exponent_bits + d.mantissa_bits)) - d.nan_count;
  if (code >= top) return std::nan("");
  if (d.infinity && code == top - 1) return std::numeric_limits<double>::infinity();
  const int exponent = code >> d.mantissa_bits;
  const int mantissa = code & ((1 << d.mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -d.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - d.bias)
                       : std::ldexp(1.0 + fraction, exponent - d.bias);
}

int LastFinite(const Definition& d) {
  return (1 << (d.exponent_bits + d.mantissa_bits)) - d.nan_count - (d.infinity ? 2 : 1);
}

template <typename F>
struct Case;
template <>
struct Case<Float16Format> {
  static constexpr Definition kIs{"float16", 5, 10, 15, true, 1023, false};
};
template <>
struct Case<Bfloat16Format> {
  static constexpr Definition kIs{"bfloat16", 8, 7, 127, true, 127, false};
};
template <>
struct Case<E4M3FNFormat> {
  static constexpr Definition kIs{"e4m3fn", 4, 3, 7, false, 1, false};
};
template <>
struct Case<E4M3FNUZFormat> {
  static constexpr Definition kIs{"e4m3fnuz", 4, 3, 8, false, 0, true};
};
template <>
struct Case<E5M2Format> {
  static constexpr Definition kIs{"e5m2", 5, 2, 15, true, 3, false};
};
template <>
struct Case<E5M2FNUZFormat> {
  static constexpr Definition kIs{"e5m2fnuz", 5, 2, 16, false, 0, true};
};
template <>
struct Case<E2M1Format> {
  static constexpr Definition kIs{"e2m1", 2, 1, 1, false, 0, false};
};

template <typename F>
class SmallFloatTest : public ::testing::Test {
 protected:
  static constexpr Definition kIs = Case<F>::kIs;
  static constexpr int kSign = 1 << (kIs.exponent_bits + kIs.mantissa_bits);
  // The code of -x, given that of x > 0 or 0.
  static int Negative(int code) { return kIs.unsigned_zero && code == 0 ? 0 : code | kSign; }
  static void ExpectCode(float x, int code, Overflow overflow = F::kDefaultOverflow) {
    EXPECT_EQ(int{EncodeFloat<F>(x, overflow)}, code) << kIs.name << " of " << x;
    EXPECT_EQ(int{EncodeFloat<F>(-x, overflow)}, Negative(code)) << kIs.name << " of " << -x;
  }
};
using Formats = ::testing::Types<Float16Format, Bfloat16Format, E4M3FNFormat, E4M3FNUZFormat,
                                 E5M2Format, E5M2FNUZFormat, E2M1Format>;
TYPED_TEST_SUITE(SmallFloatTest, Formats);

TYPED_TEST(SmallFloatTest, DecodesEveryCodeAsDefined) {
  using F = TypeParam;
  for (int code = 0; code < this->kSign; ++code) {
    const double expected = Value(this->kIs, code);
    const float got = DecodeFloat<F>(static_cast<typename F::Storage>(code));
    const float negative = DecodeFloat<F>(static_cast<typename F::Storage>(code | this->kSign));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got) && std::isnan(negative)) << this->kIs.name << " code " << code;
      continue;
    }
    EXPECT_EQ(got, expected) << this->kIs.name << " code " << code;
    if (code == 0 && this->kIs.unsigned_zero) {
      EXPECT_TRUE(std::isnan(negative));
      continue;
    }
    EXPECT_EQ(negative, -expected) << this->kIs.name << " code " << code;
    EXPECT_TRUE(std::signbit(negative));
  }
}

TYPED_TEST(SmallFloatTest, EncodesEveryNumberToItsCode) {
  for (int code = 0; code <= LastFinite(this->kIs); ++code) {
    this->ExpectCode(static_cast<float>(Value(this->kIs, code)), code);
  }
}

TYPED_TEST(SmallFloatTest, RoundsEveryBorderToTheNearestAndTiesToEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int code = 0; code < LastFinite(this->kIs); ++code) {
    const double middle = (Value(this->kIs, code) + Value(this->kIs, code + 1)) / 2;
    const float tie = static_cast<float>(middle);
    if (tie != middle) continue;  // the halves of bfloat16's subnormals below the floats
    this->ExpectCode(tie, code % 2 == 0 ? code : code + 1);
    this->ExpectCode(std::nextafter(tie, 0.0f), code);
    this->ExpectCode(std::nextafter(tie, infinity), code + 1);
  }
}

TYPED_TEST(SmallFloatTest, TreatsOverflowAsAsked) {
  using F = TypeParam;
  const int last = LastFinite(this->kIs);
  const double largest = Value(this->kIs, last);
  const double border = largest + (largest - Value(this->kIs, last - 1)) / 2;
  // The number after the largest would have code last + 1, so the border rounds up if last is odd.
  const float below =
      last % 2 == 0 ? static_cast<float>(border) : std::nextafter(static_cast<float>(border), 0.0f);
  const float infinity = std::numeric_limits<float>::infinity();
  const float beyond = std::nextafter(below, infinity);
  const bool has_nan = F::kSpecials != FloatSpecials::kNone;
  for (const Overflow overflow : {Overflow::kSaturate, Overflow::kSpecial}) {
    this->ExpectCode(below, last, overflow);
  }
  for (const float x : {beyond, infinity}) {
    this->ExpectCode(x, last, Overflow::kSaturate);
    for (const float y : {x, -x}) {
      const float special = DecodeFloat<F>(EncodeFloat<F>(y, Overflow::kSpecial));
      if (this->kIs.infinity) {
        EXPECT_EQ(special, y < 0 ? -infinity : infinity);
      } else if (has_nan) {
        EXPECT_TRUE(std::isnan(special));
      } else {
        EXPECT_EQ(std::fabs(special), largest);
      }
    }
  }
}

TYPED_TEST(SmallFloatTest, KeepsNaN) {
  using F = TypeParam;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float back = DecodeFloat<F>(EncodeFloat<F>(nan));
  if (F::kSpecials == FloatSpecials::kNone) {
    EXPECT_EQ(back, 6.0f);  // ONNX: the largest number, positive
    EXPECT_EQ(DecodeFloat<F>(EncodeFloat<F>(-nan)), 6.0f);
  } else {
    EXPECT_TRUE(std::isnan(back));
  }
}

TEST(SmallFloat, RoundsKnownValuesOfE4M3) {
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(448.0f), 0x7E);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(464.0f, Overflow::kSpecial), 0x7E);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(464.1f, Overflow::kSpecial), 0x7F);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(500.0f), 0x7E);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(1.0f), 0x38);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(0x1p-10f), 0x00);
  EXPECT_EQ(EncodeFloat<E4M3FNFormat>(-0.0f), 0x80);
  EXPECT_EQ(EncodeFloat<E4M3FNUZFormat>(-0.0f), 0x00);
  EXPECT_EQ(EncodeFloat<E4M3FNUZFormat>(-0x1p-12f), 0x00);
}

TEST(SmallFloat, RoundsE2M1BordersAsTheOcpFormatSays) {
  // Borders 0.25, 1.25, 2.5, 5 go down, 0.75, 1.75, 3.5 go up.
  const std::vector<std::pair<float, int>> cases = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                                    {2.5f, 4},  {3.5f, 6},  {5.0f, 6},  {7.0f, 7}};
  for (const auto& [x, code] : cases) {
    EXPECT_EQ(EncodeFloat<E2M1Format>(x), code) << x;
    EXPECT_EQ(EncodeFloat<E2M1Format>(-x), code | 8) << x;
  }
}

TEST(SmallFloat, KeepsThePayloadOfNaNInSixteenBits) {
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0xFF812345u)).bits, 0xFFC1);
  EXPECT_EQ(Float16(std::bit_cast<float>(0x7F801000u)).bits, 0x7E00);
  EXPECT_EQ(Float16(std::bit_cast<float>(0xFFC02000u)).bits, 0xFE01);
}

TEST(E8M0, DecodesEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(DecodeE8M0(static_cast<uint8_t>(code)), std::ldexp(1.0, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(DecodeE8M0(255)));
}

TEST(E8M0, RoundsEveryBorderInEachMode) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int code = 0; code < 254; ++code) {
    const auto low = static_cast<float>(std::ldexp(1.0, code - 127));
    const auto high = static_cast<float>(std::ldexp(1.0, code - 126));
    const float after = std::nextafter(low, infinity);
    const float tie = low + low / 2;
    EXPECT_EQ(EncodeE8M0(low, E8M0Rounding::kUp), code);
    EXPECT_EQ(EncodeE8M0(after, E8M0Rounding::kUp), code + 1);
    EXPECT_EQ(EncodeE8M0(-after, E8M0Rounding::kUp), code + 1);
    EXPECT_EQ(EncodeE8M0(std::nextafter(high, 0.0f), E8M0Rounding::kDown), code);
    EXPECT_EQ(EncodeE8M0(std::nextafter(tie, 0.0f), E8M0Rounding::kNearest), code);
    EXPECT_EQ(EncodeE8M0(tie, E8M0Rounding::kNearest), code + 1);
  }
}

TEST(E8M0, TreatsTheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(EncodeE8M0(0.0f), 0);
  EXPECT_EQ(EncodeE8M0(0x1.8p127f), 254);
  EXPECT_EQ(EncodeE8M0(0x1.8p127f, E8M0Rounding::kUp, Overflow::kSpecial), 255);
  EXPECT_EQ(EncodeE8M0(0x1.8p127f, E8M0Rounding::kDown, Overflow::kSpecial), 254);
  EXPECT_EQ(EncodeE8M0(infinity), 255);
  EXPECT_EQ(EncodeE8M0(std::nanf("")), 255);
}

TEST(Dispatch, CallsWithTheElementTypeOrSaysWhyNot) {
  int64_t size = 0;
  const auto store_size = [&]<typename T>() { size = sizeof(T); };
  EXPECT_TRUE(DispatchType(DataType::kBfloat16, store_size).ok());
  EXPECT_EQ(size, 2);
  EXPECT_TRUE(DispatchType(DataType::kDouble, store_size).ok());
  EXPECT_EQ(size, 8);
  const absl::Status status = DispatchType(DataType::kInt4, store_size);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "element type int4 is not supported here");
  EXPECT_FALSE(DispatchFloat(DataType::kDouble, store_size).ok());
  EXPECT_EQ(DispatchIndex(DataType::kInt32, [&]<typename T>() { return absl::AbortedError("x"); }),
            absl::AbortedError("x"));
}

TEST(ConvertElement, TruncatesAndSaturatesFloatsToIntegers) {
  EXPECT_EQ(ConvertElement<int8_t>(-1.9f), -1);
  EXPECT_EQ(ConvertElement<int8_t>(300.0f), 127);
  EXPECT_EQ(ConvertElement<uint8_t>(-3.0f), 0);
  EXPECT_EQ(ConvertElement<int64_t>(1e30f), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ConvertElement<int64_t>(-1e30f), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ConvertElement<int32_t>(std::nanf("")), 0);
  EXPECT_EQ(ConvertElement<int32_t>(2147483520.0f), 2147483520);
  EXPECT_TRUE(ConvertElement<bool>(0.5f));
  EXPECT_EQ(ConvertElement<int32_t>(Float16(-2.5f)), -2);
  EXPECT_EQ(ConvertElement<Float8E4M3FN>(500.0, false).bits, 0x7F);
}

}  // namespace
}  // namespace pagefuse
