// SPDX-License-Identifier: Apache-2.0
// The vector codecs of TurboQuant slots against the scalar definition, on every SIMD target.
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/formats/turboquant_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "formats/turboquant_codec_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/kernels/formats/turboquant_codec-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void VectorEncode(const TurboQuantFormat& format, const TurboQuantTables& tables, const float* key,
                  const float* value, uint8_t* slot) {
  TurboQuantWriter writer(format, tables);
  const TurboQuantRow<float> key_row = {key, slot};
  const TurboQuantRow<float> value_row = {value, slot};
  writer.StoreKeys<float>({&key_row, 1});
  writer.StoreValues<float>({&value_row, 1});
}

void VectorRotate(const float* rotation, const float* x, int64_t n, float* y) {
  RotateTurboRow(rotation, x, static_cast<size_t>(n), y);
}

// Elements by Load and LoadN, and with `two` by LoadTwo where pairs of vectors fit.
template <class Codec>
void LoadRow(const Codec& codec, const typename Codec::Row& row, int64_t n, bool two, float* to) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t d = 0;
  if constexpr (requires {
                  codec.LoadTwo(df, row, 0, *(hn::Vec<decltype(df)>*)nullptr,
                                *(hn::Vec<decltype(df)>*)nullptr);
                }) {
    for (; two && d + 2 * lanes <= n; d += 2 * lanes) {
      auto a = hn::Zero(df);
      auto b = a;
      codec.LoadTwo(df, row, static_cast<size_t>(d), a, b);
      std::vector<float> first(lanes), second(lanes);
      hn::StoreU(a, df, first.data());
      hn::StoreU(b, df, second.data());
      for (int64_t i = 0; i < lanes; ++i) {
        to[Codec::kEvenOdd ? d + 2 * i : d + i] = first[i];
        to[Codec::kEvenOdd ? d + 2 * i + 1 : d + lanes + i] = second[i];
      }
    }
  }
  for (; d + lanes <= n; d += lanes) hn::StoreU(codec.Load(df, row, d), df, to + d);
  if (d == n) return;
  std::vector<float> tail(lanes);
  hn::StoreU(codec.LoadN(df, row, d, n - d), df, tail.data());
  for (int64_t i = 0; i < lanes; ++i) {
    if (i < n - d) to[d + i] = tail[i];
    if (i >= n - d && tail[i] != 0) to[d] = NAN;  // lanes past the row must be zero
  }
}

template <int bits>
void DecodeKey(const TurboQuantFormat& format, const float* centroids, bool correct,
               std::vector<uint8_t>& slot, float* codes) {
  RowAddress address;
  address.data = slot.data();
  address.scale = slot.data() + format.KeyDataBytes();
  const TurboKeyRowCodec<bits> codec(centroids, correct, static_cast<size_t>(format.head_size));
  const auto row = codec.Open(address);
  LoadRow(codec, row, format.head_size, false, codes);
  for (int64_t d = 0; d < format.head_size; ++d) codes[d] *= row.scale;
}

template <int bits>
void DecodeValue(const TurboQuantFormat& format, bool two, std::vector<uint8_t>& slot,
                 float* value) {
  RowAddress address;
  address.data = slot.data() + format.KeyBytes();
  address.scale = address.data + format.ValueDataBytes();
  if (two) {
    const TurboValueCodec<bits> codec;
    const auto row = codec.Open(address);
    LoadRow(codec, row, format.head_size, true, value);
    for (int64_t d = 0; d < format.head_size; ++d) value[d] = value[d] * row.scale + row.offset;
  } else {
    const TurboValueRowCodec<bits> codec;
    LoadRow(codec, codec.Open(address), format.head_size, false, value);
  }
}

void VectorDecodeKey(const TurboQuantFormat& format, const float* centroids, bool correct,
                     std::vector<uint8_t>& slot, float* key) {
  if (format.key_bits == 3) {
    DecodeKey<3>(format, centroids, correct, slot, key);
  } else {
    DecodeKey<4>(format, centroids, correct, slot, key);
  }
}

void VectorDecodeValue(const TurboQuantFormat& format, bool two, std::vector<uint8_t>& slot,
                       float* value) {
  if (format.value_bits == 3) {
    DecodeValue<3>(format, two, slot, value);
  } else {
    DecodeValue<4>(format, two, slot, value);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {
namespace {

HWY_EXPORT(VectorEncode);
HWY_EXPORT(VectorRotate);
HWY_EXPORT(VectorDecodeKey);
HWY_EXPORT(VectorDecodeValue);

std::vector<float> RandomRow(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  if (n > 5) x[5] = 700;  // beyond float8
  return x;
}

std::vector<TurboQuantFormat> AllFormats(const std::vector<int64_t>& sizes) {
  std::vector<TurboQuantFormat> formats;
  for (const int64_t size : sizes) {
    for (const int key_bits : {3, 4, 8}) {
      for (const int value_bits : {3, 4}) {
        const TurboQuantFormat format{key_bits, value_bits, size};
        if (CheckHeadSize(format).ok()) formats.push_back(format);
      }
    }
  }
  return formats;
}

TurboQuantTables DefaultTables(const TurboQuantFormat& format) {
  if (!format.has_centroids()) return {};
  return {nullptr, DefaultCentroids(format.head_size, format.key_bits).data()};
}

TEST(TurboQuantCodec, StoresTheBytesOfTheDefinitionAndNoOthers) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(5);
    for (const TurboQuantFormat& format : AllFormats({2, 4, 8, 16, 32, 64, 128, 256, 512})) {
      const TurboQuantTables tables = DefaultTables(format);
      for (int i = 0; i < 4; ++i) {
        const std::vector<float> key = RandomRow(format.head_size, random);
        const std::vector<float> value = RandomRow(format.head_size, random);
        constexpr size_t kGuard = 67;
        std::vector<uint8_t> expected(format.SlotBytes() + 2 * kGuard, 0xA5);
        std::vector<uint8_t> got = expected;
        EncodeTurboQuantKey(format, tables, key.data(), expected.data() + kGuard);
        EncodeTurboQuantValue(format, value.data(), expected.data() + kGuard);
        HWY_DYNAMIC_DISPATCH(VectorEncode)
        (format, tables, key.data(), value.data(), got.data() + kGuard);
        ASSERT_EQ(got, expected) << format.key_bits << " " << format.value_bits << " "
                                 << format.head_size;
      }
    }
  });
}

// Sizes that are no power of two need no rotation with 8-bit keys.
TEST(TurboQuantCodec, StoresRowsOfOddSizes) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(6);
    for (const TurboQuantFormat& format : AllFormats({6, 10, 24, 40, 80, 96, 120, 192})) {
      if (format.has_centroids()) continue;
      const std::vector<float> row = RandomRow(format.head_size, random);
      std::vector<uint8_t> expected(format.SlotBytes(), 0xA5);
      std::vector<uint8_t> got = expected;
      EncodeTurboQuantKey(format, {}, row.data(), expected.data());
      EncodeTurboQuantValue(format, row.data(), expected.data());
      HWY_DYNAMIC_DISPATCH(VectorEncode)(format, {}, row.data(), row.data(), got.data());
      ASSERT_EQ(got, expected) << format.value_bits << " " << format.head_size;
    }
  });
}

// A slot with every code at every place in turn.
std::vector<uint8_t> EveryCode(const TurboQuantFormat& format, int first) {
  std::vector<uint8_t> slot(format.SlotBytes());
  std::vector<uint8_t> codes(format.head_size);
  for (int64_t d = 0; d < format.head_size; ++d) {
    codes[d] = static_cast<uint8_t>((first + 3 * d + d / 16) % 16);
  }
  const auto pack = [&](int bits, uint8_t* to) {
    if (bits == 3) PackBits<3>(codes.data(), format.head_size, to);
    if (bits == 4) PackBits<4>(codes.data(), format.head_size, to);
  };
  pack(format.key_bits, slot.data());
  pack(format.value_bits, slot.data() + format.KeyBytes());
  uint8_t* value_end = slot.data() + format.SlotBytes() - 4;
  if (format.has_centroids()) slot[format.KeyDataBytes() + 1] = 0x40;  // 2
  value_end[0] = 0x55;
  value_end[1] = 0x31;  // 0.1666
  value_end[2] = 0x33;
  value_end[3] = 0xB3;  // -0.2249
  return slot;
}

TEST(TurboQuantCodec, LoadsTheNumbersOfTheDefinition) {
  testing::ForEachSimdTarget([] {
    for (const TurboQuantFormat& format :
         AllFormats({2, 8, 10, 16, 24, 32, 40, 64, 80, 96, 128, 192, 256})) {
      for (int first = 0; first < 16; ++first) {
        std::vector<uint8_t> slot = EveryCode(format, first);
        std::vector<float> expected(format.head_size);
        std::vector<float> got(format.head_size);
        DecodeTurboQuantValue(format, slot.data(), expected.data());
        for (const bool two : {false, true}) {
          HWY_DYNAMIC_DISPATCH(VectorDecodeValue)(format, two, slot, got.data());
          ASSERT_EQ(got, expected) << format.value_bits << " " << format.head_size << " " << two;
        }
        if (!format.has_centroids()) continue;
        const float* centroids = DefaultTables(format).centroids;
        for (const bool correct : {false, true}) {
          const float norm =
              DecodeTurboQuantKey(format, centroids, correct, slot.data(), expected.data());
          HWY_DYNAMIC_DISPATCH(VectorDecodeKey)(format, centroids, correct, slot, got.data());
          for (int64_t d = 0; d < format.head_size; ++d) {
            ASSERT_NEAR(got[d], norm * expected[d], correct ? 4e-7 : 0)
                << format.key_bits << " " << format.head_size << " " << d;
          }
        }
      }
    }
  });
}

TEST(TurboQuantCodec, RotatesAsTheDefinitionDoes) {
  testing::ForEachSimdTarget([] {
    std::mt19937 random(7);
    for (const int64_t n : {1, 2, 4, 8, 16, 64, 128, 512}) {
      const std::vector<float> x = RandomRow(n, random);
      std::vector<float> expected(n), got(n);
      RotateTurboQuant(nullptr, x.data(), n, expected.data());
      HWY_DYNAMIC_DISPATCH(VectorRotate)(nullptr, x.data(), n, got.data());
      ASSERT_EQ(got, expected) << n;
    }
    for (const int64_t n : {3, 5, 24, 80, 90, 96}) {
      const std::vector<float> x = RandomRow(n, random);
      const std::vector<float> matrix = RandomRow(n * n, random);
      std::vector<float> expected(n), got(n);
      RotateTurboQuant(matrix.data(), x.data(), n, expected.data());
      HWY_DYNAMIC_DISPATCH(VectorRotate)(matrix.data(), x.data(), n, got.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], expected[i], 1e-5 * 3 * 3 * 700 * n) << n;
    }
  });
}

}  // namespace
}  // namespace pagefuse
#endif  // HWY_ONCE
