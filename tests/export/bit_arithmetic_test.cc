// SPDX-License-Identifier: Apache-2.0
// Bits by arithmetic against the bits themselves: every number of 8 and 16 bits, and of 32 bits
// those of every exponent, borders, ties and the special ones.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/lower/body_rewrites.h"

namespace pagefuse {
namespace {

// y = node (x), evaluated as it is and lowered.
struct Both {
  Tensor want, got;
};

Both RunBoth(const std::string& from, const std::string& to, const std::string& node,
             const Tensor& x) {
  const std::string text = StrCat("<ir_version: 10, opset_import: [\"\" : 26]>\ng (", from,
                                  "[N] x) => (", to, "[N] y) {\n", node, "\n}\n");
  Both both;
  auto model = Must(ParseModel(text));
  EXPECT_TRUE(InferShapes(model).ok());
  both.want = Must(EvaluateModel(model, {{"x", x}}))[0];
  const absl::Status lowered = LowerBits(*model.graph);
  EXPECT_TRUE(lowered.ok()) << lowered;
  model.opset_imports[""] = 21;
  for (const auto& left : model.graph->nodes()) EXPECT_FALSE(left->Is("BitCast"));
  Tensor feed = x;
  if (x.dtype() == DataType::kFloat8E4M3FN) {
    feed = *Tensor::View(DataType::kUint8, x.dims(), x.buffer(), x.buffer_offset());
  }
  both.got = Must(EvaluateModel(model, {{"x", feed}}))[0];
  return both;
}

template <typename T>
bool IsNan(T bits, int mantissa, int width) {
  const auto size = static_cast<uint64_t>(bits) & ((uint64_t{1} << (width - 1)) - 1);
  return size > (((uint64_t{1} << (width - 1 - mantissa)) - 1) << mantissa);
}

// Bit for bit; a NaN may be another one.
template <typename T>
void ExpectSameBits(const Both& both, int mantissa) {
  ASSERT_EQ(both.got.byte_size(), both.want.byte_size());
  const auto* want = static_cast<const T*>(both.want.data());
  const auto* got = static_cast<const T*>(both.got.data());
  int differences = 0;
  for (int64_t i = 0; i < both.want.size() && differences < 5; ++i) {
    if (want[i] == got[i]) continue;
    if (mantissa > 0 && IsNan(want[i], mantissa, 8 * sizeof(T)) &&
        IsNan(got[i], mantissa, 8 * sizeof(T))) {
      continue;
    }
    ++differences;
    ADD_FAILURE() << "element " << i << ": expected " << std::hex << +want[i] << ", got "
                  << +got[i];
  }
}

template <typename T>
Tensor Patterns(DataType type, const std::vector<T>& bits) {
  Tensor tensor = *Tensor::Allocate(type, {static_cast<int64_t>(bits.size())});
  std::memcpy(tensor.mutable_data(), bits.data(), bits.size() * sizeof(T));
  return tensor;
}

std::vector<uint16_t> All16() {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

// Both signs of every exponent with the mantissas around its ends and middle, and random ones.
std::vector<uint32_t> Some32() {
  std::vector<uint32_t> some;
  for (uint32_t sign : {0U, 1U}) {
    for (uint32_t exponent = 0; exponent < 256; ++exponent) {
      for (uint32_t mantissa : {0U, 1U, 0x3FFFFFU, 0x400000U, 0x400001U, 0x7FFFFEU, 0x7FFFFFU}) {
        some.push_back(sign << 31 | exponent << 23 | mantissa);
      }
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) some.push_back(static_cast<uint32_t>(random()));
  return some;
}

constexpr int kMantissa16 = 10, kMantissaB16 = 7, kMantissa32 = 23;

TEST(BitArithmetic, FloatToBits) {
  const Both both =
      RunBoth("float", "int32", "y = BitCast <to = 6> (x)", Patterns(DataType::kFloat, Some32()));
  ExpectSameBits<uint32_t>(both, kMantissa32);
}

TEST(BitArithmetic, BitsToFloat) {
  for (const char* from : {"int32", "uint32"}) {
    const DataType type = *DataTypeFromName(from);
    const Both both = RunBoth(from, "float", "y = BitCast <to = 1> (x)", Patterns(type, Some32()));
    ExpectSameBits<uint32_t>(both, kMantissa32);
  }
}

TEST(BitArithmetic, HalvesToBitsAndBack) {
  for (const char* name : {"float16", "bfloat16"}) {
    SCOPED_TRACE(name);
    const DataType type = *DataTypeFromName(name);
    const int mantissa = type == DataType::kFloat16 ? kMantissa16 : kMantissaB16;
    ExpectSameBits<uint16_t>(
        RunBoth(name, "uint16", "y = BitCast <to = 4> (x)", Patterns(type, All16())), mantissa);
    ExpectSameBits<uint16_t>(
        RunBoth("uint16", name, StrCat("y = BitCast <to = ", static_cast<int>(type), "> (x)"),
                Patterns(DataType::kUint16, All16())),
        mantissa);
  }
}

TEST(BitArithmetic, BytesChangeTheirSign) {
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  ExpectSameBits<uint8_t>(
      RunBoth("uint8", "int8", "y = BitCast <to = 3> (x)", Patterns(DataType::kUint8, all)), 0);
  ExpectSameBits<uint8_t>(
      RunBoth("int8", "uint8", "y = BitCast <to = 2> (x)", Patterns(DataType::kInt8, all)), 0);
}

TEST(BitArithmetic, Float8IsDecoded) {
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  ExpectSameBits<uint32_t>(
      RunBoth("uint8", "float", "c = BitCast <to = 17> (x)\n y = Cast <to = 1> (c)",
              Patterns(DataType::kUint8, all)),
      kMantissa32);
  ExpectSameBits<uint32_t>(RunBoth("float8e4m3fn", "float", "y = Cast <to = 1> (x)",
                                   Patterns(DataType::kFloat8E4M3FN, all)),
                           kMantissa32);
}

// All codes, the middles between two neighbours, and what lies next to these; and numbers anywhere.
std::vector<float> AroundFloat8() {
  std::vector<float> some = {0.F, -0.F, INFINITY, -INFINITY, 1e30F, -1e30F, 1e-30F, -1e-30F};
  std::vector<float> codes;
  for (int k = 0; k <= 15; ++k) {
    for (int m = 0; m < 8; ++m) {
      codes.push_back(k == 0 ? std::ldexp(static_cast<float>(m), -9)
                             : std::ldexp(static_cast<float>(8 + m), k - 10));
    }
  }
  for (size_t i = 0; i + 1 < codes.size(); ++i) {
    for (const float x : {codes[i], (codes[i] + codes[i + 1]) / 2}) {
      for (const float y : {std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY)}) {
        some.push_back(y);
        some.push_back(-y);
      }
    }
  }
  for (const uint32_t bits : Some32()) {
    const float x = std::bit_cast<float>(bits);
    if (!std::isnan(x)) some.push_back(x);
  }
  return some;
}

TEST(BitArithmetic, Float8IsEncoded) {
  for (const char* saturate : {"", ", saturate = 0"}) {
    SCOPED_TRACE(saturate);
    const Both both = RunBoth(
        "float", "uint8", StrCat("c = Cast <to = 17", saturate, "> (x)\n y = BitCast <to = 2> (c)"),
        Patterns(DataType::kFloat, AroundFloat8()));
    ExpectSameBits<uint8_t>(both, 0);
  }
}

TEST(BitArithmetic, RefusesArithmeticInFloat8) {
  auto model = Must(ParseModel(R"(
<ir_version: 10, opset_import: ["" : 26]>
g (float8e4m3fn[N] x) => (bool[N] y) { y = IsNaN (x) }
)"));
  ASSERT_TRUE(InferShapes(model).ok());
  const absl::Status status = LowerBits(*model.graph);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("\"y\" (IsNaN)"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace pagefuse
