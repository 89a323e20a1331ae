// SPDX-License-Identifier: Apache-2.0
// The vector codecs against the scalar definition, byte for byte, on every SIMD target.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "formats/row_codec_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/kernels/formats/for_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void VectorEncode(const CacheFormat& format, const RowParams& params, const float* x, int64_t n,
                  RowAddress row) {
  std::vector<float> scratch(n);
  ForFormat(format, [&](const auto& views) HWY_ATTR {
    views.Writer(format, params).Store(x, n, row, scratch.data());
  });
}

float VectorDecode(const CacheFormat& format, const RowParams& params, RowAddress row, int64_t n,
                   float* codes) {
  const hn::ScalableTag<float> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  float scale = 0;
  ForFormat(format, [&](const auto& views) HWY_ATTR {
    const auto codec = views.Writer(format, params);
    const auto opened = codec.Open(row);
    scale = opened.scale;
    int64_t d = 0;
    for (; d + lanes <= n; d += lanes) hn::StoreU(codec.Load(df, opened, d), df, codes + d);
    if (d == n) return;
    std::vector<float> tail(lanes);
    hn::StoreU(codec.LoadN(df, opened, d, n - d), df, tail.data());
    for (int64_t i = 0; i < lanes; ++i) {
      if (i < n - d) {
        codes[d + i] = tail[i];
      } else if (tail[i] != 0) {
        scale = NAN;  // lanes past the row must be zero
      }
    }
  });
  return scale;
}

// Rows of x one behind the other, in the cache too.
void VectorStoreRows(const CacheFormat& format, const RowParams& params,
                     const std::vector<Bfloat16>& x, int64_t n, RowAddress first) {
  std::vector<float> scratch(kRowsAtOnce * n);
  const RowsToStore<Bfloat16> rows = {.x = x.data(),
                                      .n = static_cast<size_t>(n),
                                      .count = static_cast<int64_t>(x.size()) / n,
                                      .first = first,
                                      .data_strides = {.head = format.RowBytes(n)},
                                      .scale_strides = {.head = format.ScaleBytes()}};
  ForFormat(format, [&](const auto& views) HWY_ATTR {
    StoreRows(views.Writer(format, params), rows, scratch.data());
  });
}

// False where there are no tables, or none for this scale.
bool TableEncode([[maybe_unused]] float scale, [[maybe_unused]] const Bfloat16* x,
                 [[maybe_unused]] size_t n, [[maybe_unused]] uint8_t* to) {
#if PF_HAS_BYTE_TABLES
  if (!E4M3Table::Takes(scale)) return false;
  E4M3Table(Fp8TensorCodec{{.tensor_scale = scale}}).Encode(x, n, to);
  return true;
#else
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {
namespace {

HWY_EXPORT(VectorEncode);
HWY_EXPORT(VectorDecode);
HWY_EXPORT(TableEncode);
HWY_EXPORT(VectorStoreRows);

struct FormatCase {
  std::string name;
  CacheFormat format;
  DataType source_type = DataType::kFloat;
};

// Every format: of each type where it has any, with each rounding, from each type that it rounds to.
std::vector<FormatCase> AllFormats() {
  using enum DataType;
  std::vector<FormatCase> cases;
  for (const RowFormat& row : RowFormats()) {
    const std::string name(row.name);
    CacheFormat format = *CacheFormat::Make(row.mode, row.types.front());
    for (const DataType type : row.types) {
      if (format.is_plain()) {
        cases.push_back({std::string(DataTypeName(type)), *CacheFormat::Make(row.mode, type)});
      }
    }
    if (format.is_plain()) continue;
    cases.push_back({name, format});
    if (format.needs_signs()) {
      for (const DataType type : {kFloat16, kBfloat16}) {
        cases.push_back({name + "_of_" + std::string(DataTypeName(type)), format, type});
      }
    }
    if (row.has_rounding) {
      format.int8_rounding = Int8Rounding::kTowardZero;
      cases.push_back({name + "_toward_zero", format});
    }
  }
  return cases;
}

std::vector<int64_t> RowSizes(const CacheFormat& format) {
  if (format.needs_signs()) return {1, 2, 4, 8, 16, 32, 64, 128, 256};
  return {1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 80, 96, 127, 192, 256, 576};
}

// One row with room for its bytes at an odd address, and guards around them.
struct GuardedRow {
  static constexpr int64_t kGuard = 67;
  explicit GuardedRow(const CacheFormat& format, int64_t n)
      : bytes(format.RowBytes(n)), memory(bytes + 2 * kGuard, 0xA5), scale(12, 0xA5) {}
  RowAddress address() { return {memory.data() + kGuard, scale.data() + 3}; }

  int64_t bytes;
  std::vector<uint8_t> memory;
  std::vector<uint8_t> scale;
};

class RowCodec : public ::testing::TestWithParam<FormatCase> {
 protected:
  std::vector<float> RandomRow(int64_t n) {
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> x(n);
    for (float& v : x) v = normal(random_);
    if (n > 3) x[2] = 0;
    if (n > 8) x[5] = 700;  // beyond fp8
    return x;
  }
  RowParams Params(int64_t n) {
    signs_.resize(n);
    for (float& sign : signs_) sign = random_() % 2 ? 1.0f : -1.0f;
    return {
        .tensor_scale = 0.37f, .rht_signs = signs_.data(), .source_type = GetParam().source_type};
  }
  std::mt19937 random_{11};
  std::vector<float> signs_;
};

TEST_P(RowCodec, StoresTheBytesOfTheDefinitionAndNoOthers) {
  const CacheFormat& format = GetParam().format;
  testing::ForEachSimdTarget([&] {
    for (const int64_t n : RowSizes(format)) {
      const RowParams params = Params(n);
      std::vector<float> x = RandomRow(n);
      GuardedRow expected(format, n);
      GuardedRow got(format, n);
      EncodeRow(format, params, x.data(), n, expected.address());
      HWY_DYNAMIC_DISPATCH(VectorEncode)(format, params, x.data(), n, got.address());
      ASSERT_EQ(got.memory, expected.memory) << "row of " << n;
      ASSERT_EQ(got.scale, expected.scale) << "row of " << n;
      for (int64_t i = 0; i < GuardedRow::kGuard; ++i) {
        ASSERT_EQ(got.memory[i], 0xA5);
        ASSERT_EQ(got.memory[GuardedRow::kGuard + got.bytes + i], 0xA5);
      }
    }
  });
}

// Of 16 bits, as models have them, more than are stored at once, and halves between codes among
// them. Where no transform spreads them, some are NaN or infinite.
TEST_P(RowCodec, StoresRowsTogetherAsOneByOne) {
  const CacheFormat& format = GetParam().format;
  constexpr int64_t kRows = 11;
  testing::ForEachSimdTarget([&] {
    for (const int64_t n : RowSizes(format)) {
      const RowParams params = Params(n);
      std::vector<Bfloat16> x;
      std::vector<uint8_t> expected(kRows * (format.RowBytes(n) + 4));
      for (int64_t row = 0; row < kRows; ++row) {
        std::vector<float> numbers = RandomRow(n);
        for (size_t i = 0; i < numbers.size() && row % 3 == 1; ++i) {
          numbers[i] = static_cast<float>(i % 255) / 2 - 63.5f;
        }
        if (row % 4 == 2 && !format.needs_signs()) numbers[n / 2] = NAN;
        if (row % 4 == 3 && !format.needs_signs()) numbers[n - 1] = INFINITY;
        for (float& v : numbers) v = static_cast<float>(x.emplace_back(v));
        EncodeRow(format, params, numbers.data(), n,
                  {expected.data() + row * format.RowBytes(n),
                   expected.data() + kRows * format.RowBytes(n) + row * 4});
      }
      std::vector<uint8_t> got(expected.size());
      HWY_DYNAMIC_DISPATCH(VectorStoreRows)
      (format, params, x, n, {got.data(), got.data() + kRows * format.RowBytes(n)});
      ASSERT_EQ(got, expected) << "rows of " << n;
    }
  });
}

TEST_P(RowCodec, LoadsTheNumbersOfTheDefinition) {
  const CacheFormat& format = GetParam().format;
  testing::ForEachSimdTarget([&] {
    for (const int64_t n : RowSizes(format)) {
      const RowParams params = Params(n);
      GuardedRow row(format, n);
      EncodeRow(format, params, RandomRow(n).data(), n, row.address());
      std::vector<float> expected(n);
      std::vector<float> got(n);
      const float scale = DecodeRow(format, params, row.address(), n, expected.data());
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(VectorDecode)(format, params, row.address(), n, got.data()),
                scale);
      ASSERT_EQ(got, expected) << "row of " << n;
    }
  });
}

// Ordinary ones, powers of two, mantissas of ones, very large and very small ones.
std::vector<float> Scales() {
  std::vector<float> scales = {1.0f,  0.37f,    0.25f,   0x1.fffffep-3f, 0x1.000002p5f, 1e-30f,
                               3e30f, 0x1p-60f, 0x1p60f, 1e-39f,         7e-45f,        -0.81f};
  std::mt19937 random(3);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (int i = 0; i < 200; ++i) {
    scales.push_back(std::ldexp(mantissa(random), static_cast<int>(random() % 80) - 40));
  }
  return scales;
}

TEST(Fp8TensorCodec, RoundsAsTheDivision) {
  const CacheFormat format = {.mode = KvQuantMode::kFp8PerTensor,
                              .element = DataType::kFloat8E4M3FN};
  for (const float scale : Scales()) {
    // Every number of the format and every half between two, and the floats beside their multiples.
    std::vector<float> x = {INFINITY, -INFINITY, 3e38f, -3e38f};
    for (int code = 0; code < 0x7E; ++code) {
      const auto low = static_cast<float>(Float8E4M3FN::FromBits(static_cast<uint8_t>(code)));
      const auto high = static_cast<float>(Float8E4M3FN::FromBits(static_cast<uint8_t>(code + 1)));
      for (const float q : {low, (low + high) / 2}) {
        for (const float y : {q, std::nextafter(q, 0.0f), std::nextafter(q, 500.0f)}) {
          x.push_back(y * scale);
          x.push_back(-y * scale);
        }
      }
    }
    for (const bool with_nan : {false, true}) {
      if (with_nan) x[17] = NAN;
      const auto n = static_cast<int64_t>(x.size());
      GuardedRow expected(format, n);
      EncodeRow(format, {.tensor_scale = scale}, x.data(), n, expected.address());
      testing::ForEachSimdTarget([&] {
        GuardedRow got(format, n);
        HWY_DYNAMIC_DISPATCH(VectorEncode)
        (format, {.tensor_scale = scale}, x.data(), n, got.address());
        ASSERT_EQ(got.memory, expected.memory) << "scale " << scale;
      });
    }
  }
}

std::vector<Bfloat16> AllBfloat16() {
  std::vector<Bfloat16> all;
  for (int bits = 0; bits < 0x10000; ++bits) {
    all.push_back(Bfloat16::FromBits(static_cast<uint16_t>(bits)));
  }
  return all;
}

// Codes of e4m3fn of x / scale, by the definition.
std::vector<uint8_t> Quotients(const std::vector<Bfloat16>& x, float scale) {
  std::vector<uint8_t> codes;
  for (const Bfloat16 v : x) codes.push_back(Float8E4M3FN(static_cast<float>(v) / scale).bits);
  return codes;
}

TEST(E4M3Table, HasTheCodeOfEveryNumber) {
  const std::vector<Bfloat16> x = AllBfloat16();
  std::vector<float> scales = Scales();
  for (const float edge : {0x1p-100f, 0x1p100f}) {
    for (const float scale : {edge, std::nextafter(edge, 0.0f), std::nextafter(edge, 4e30f)}) {
      scales.push_back(scale);
    }
  }
  int taken = 0;
  testing::ForEachSimdTarget([&] {
    for (const float scale : scales) {
      std::vector<uint8_t> codes(x.size());
      if (!HWY_DYNAMIC_DISPATCH(TableEncode)(scale, x.data(), x.size(), codes.data())) continue;
      ++taken;
      ASSERT_EQ(codes, Quotients(x, scale)) << "scale " << scale;
    }
  });
  const bool has_tables = (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
  EXPECT_EQ(taken > 0, has_tables);
}

TEST(E4M3Table, StoresRowsOfAnySize) {
  const std::vector<Bfloat16> all = AllBfloat16();
  constexpr size_t kGuard = 70;
  testing::ForEachSimdTarget([&] {
    for (size_t n = 0; n <= 200; ++n) {
      const std::vector<Bfloat16> x(all.begin() + 0x3F00, all.begin() + 0x3F00 + n);
      std::vector<uint8_t> codes(n + kGuard, 0xA5);
      if (!HWY_DYNAMIC_DISPATCH(TableEncode)(0.37f, x.data(), n, codes.data())) return;
      std::vector<uint8_t> expected = Quotients(x, 0.37f);
      expected.resize(n + kGuard, 0xA5);
      ASSERT_EQ(codes, expected) << "row of " << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, RowCodec, ::testing::ValuesIn(AllFormats()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagefuse
#endif  // HWY_ONCE
