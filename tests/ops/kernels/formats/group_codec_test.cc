// SPDX-License-Identifier: Apache-2.0
// Groups and grouped rows in vectors against the scalar definition, on every SIMD target.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "formats/group_codec_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"

#ifndef PAGEFUSE_TESTS_GROUPS_
#define PAGEFUSE_TESTS_GROUPS_
namespace pagefuse {
struct Groups {
  int64_t count = 0;
  int64_t size = 0;
};
}  // namespace pagefuse
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

float VectorGroup(const GroupFormat& format, const float* x, int64_t n, uint8_t* codes) {
  return EncodeGroupVectors(format, x, static_cast<size_t>(n), codes);
}

// Of numbers that From has.
template <typename From>
void GroupsOf(const GroupFormat& format, const Groups& groups, const float* x, uint8_t* codes,
              float* scales) {
  std::vector<From> from;
  for (int64_t i = 0; i < groups.count * groups.size; ++i) from.push_back(From(x[i]));
  EncodeGroupsVectors(format, from.data(),
                      {static_cast<size_t>(groups.count), static_cast<size_t>(groups.size)}, codes,
                      scales);
}

void VectorGroups(const GroupFormat& format, const Groups& groups, DataType type, const float* x,
                  uint8_t* codes, float* scales) {
  if (type == DataType::kFloat16) return GroupsOf<Float16>(format, groups, x, codes, scales);
  if (type == DataType::kBfloat16) return GroupsOf<Bfloat16>(format, groups, x, codes, scales);
  GroupsOf<float>(format, groups, x, codes, scales);
}

void VectorRow(const GroupedRowFormat& format, const float* x, const void* tail, RowAddress row) {
  EncodeGroupedRowVectors(format, x, tail, row);
}

// The row by Load, or by LoadN of three elements at a time.
void CodecBack(const GroupedRowFormat& format, RowAddress row, bool pieces, float* x) {
  const hn::ScalableTag<float> df;
  const size_t n = static_cast<size_t>(format.elements());
  const size_t lanes = hn::Lanes(df);
  WithGroupedCodec(format, [&](const auto& codec) HWY_ATTR {
    const auto opened = codec.Open(row);
    std::vector<float> buffer(lanes);
    for (size_t d = 0; d < n;) {
      // Codecs of one group size take elements of one group; the others lie across groups too.
      const size_t left = format.group % 16 == 0 ? format.group - d % format.group : n;
      const size_t count = std::min<size_t>({pieces ? 3 : lanes, left, n - d, lanes});
      hn::StoreU(count < lanes ? codec.LoadN(df, opened, d, count) : codec.Load(df, opened, d), df,
                 buffer.data());
      for (size_t i = 0; i < lanes; ++i) {
        if (i < count) x[d + i] = buffer[i] * opened.scale;
        if (i >= count && buffer[i] != 0) x[d] = NAN;  // lanes past the count must be zero
      }
      d += count;
    }
  });
}

void E2M1Back(const GroupedRowFormat& format, RowAddress row, float* x) {
  DecodeE2M1Row(format, row, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {
namespace {

HWY_EXPORT(VectorGroup);
HWY_EXPORT(VectorGroups);
HWY_EXPORT(VectorRow);
HWY_EXPORT(CodecBack);
HWY_EXPORT(E2M1Back);

std::vector<float> RandomRow(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = normal(random) * std::exp2(static_cast<float>(i / 32 % 9) * 4 - 16);
    if (i % 13 == 7) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (i % 17 == 5) x[i] = std::ldexp(static_cast<float>(i % 8), -2);
  }
  return x;
}

TEST(GroupVectors, EncodeAsTheDefinition) {
  for (const GroupCodes codes : {GroupCodes::kE4M3, GroupCodes::kE2M1}) {
    for (const GroupScale scale :
         {GroupScale::kUe8m0, GroupScale::kPowerOfTwo, GroupScale::kFloat}) {
      const GroupFormat format = {codes, scale, kCacheScaleFloor};
      testing::ForEachSimdTarget([&] {
        for (const int64_t n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 100, 128, 130}) {
          std::vector<float> x = RandomRow(n, static_cast<uint32_t>(n));
          for (const float special : {0.0f, NAN, INFINITY, -3e38f}) {
            if (special != 0) x[n / 2] = special;
            std::vector<uint8_t> want(n + 8, 0xA5);
            std::vector<uint8_t> got(n + 8, 0xA5);
            const float want_scale = EncodeGroup(format, x.data(), n, want.data() + 1);
            const float got_scale =
                HWY_DYNAMIC_DISPATCH(VectorGroup)(format, x.data(), n, got.data() + 1);
            ASSERT_EQ(got_scale, want_scale);
            // What infinity / infinity encodes to is open: the sign of its NaN.
            if (!std::isinf(special)) {
              ASSERT_EQ(got, want) << n << " with " << special;
            }
          }
        }
      });
    }
  }
}

// Groups with numbers on and beside the borders between codes, from zero and subnormal codes to the
// largest one; with `special` in one group unless it is 0.
std::vector<float> GroupNumbers(const Groups& groups, float special) {
  std::vector<float> x = RandomRow(groups.count * groups.size, 11);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 3 != 0) continue;
    const float border =
        std::ldexp(static_cast<float>(17 + 2 * (i % 8)), static_cast<int>(i % 20) - 16);
    x[i] = i % 2 == 0 ? border : -std::nextafter(border, i % 4 == 1 ? 0.0f : 1e9f);
  }
  if (special != 0) x[x.size() / 2] = special;
  return x;
}

void ExpectGroupsAsOneByOne(const GroupFormat& format, const Groups& groups, DataType type,
                            float special) {
  std::vector<float> x = GroupNumbers(groups, special);
  for (float& v : x) {
    if (type == DataType::kFloat16) v = static_cast<float>(Float16(v));
    if (type == DataType::kBfloat16) v = static_cast<float>(Bfloat16(v));
  }
  const int64_t bytes = format.CodeBytes(groups.size);
  std::vector<uint8_t> want(groups.count * bytes + 8, 0xA5);
  std::vector<uint8_t> got = want;
  std::vector<float> scales(groups.count);
  HWY_DYNAMIC_DISPATCH(VectorGroups)(format, groups, type, x.data(), got.data() + 1, scales.data());
  for (int64_t g = 0; g < groups.count; ++g) {
    const float* from = x.data() + g * groups.size;
    EXPECT_EQ(scales[g], EncodeGroup(format, from, groups.size, want.data() + 1 + g * bytes));
  }
  // What infinity / infinity encodes to is open: the sign of its NaN.
  if (!std::isinf(special) && !(special == -3e38f && type == DataType::kFloat16)) {
    EXPECT_EQ(got, want) << groups.count << " of " << groups.size << " with " << special << " of "
                         << DataTypeName(type);
  }
}

TEST(GroupVectors, EncodeTogetherAsOneByOne) {
  for (const GroupCodes codes : {GroupCodes::kE4M3, GroupCodes::kE2M1}) {
    for (const GroupScale scale :
         {GroupScale::kUe8m0, GroupScale::kPowerOfTwo, GroupScale::kFloat}) {
      const float floor = codes == GroupCodes::kE4M3 ? kDsMlaFloor : kMxfp4Floor;
      for (const float least : {kCacheScaleFloor, floor, 0.0f}) {
        const GroupFormat format = {codes, scale, least};
        testing::ForEachSimdTarget([&] {
          for (const int64_t count : {1, 3, 4, 17, 33}) {
            for (const int64_t size : {16, 32, 33, 48, 64, 128}) {
              for (const float special : {0.0f, NAN, INFINITY, -3e38f, 1e-42f}) {
                for (const DataType type :
                     {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16}) {
                  ExpectGroupsAsOneByOne(format, {count, size}, type, special);
                }
              }
            }
          }
        });
      }
    }
  }
}

// Every bfloat16 number that fits under a scale of 2^exponent, in groups whose first number is the
// largest of that scale.
std::vector<float> EveryBfloat16(const GroupFormat& format, int exponent, int64_t group) {
  const float largest = std::ldexp(format.LargestCode(), exponent);
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto v = static_cast<float>(Bfloat16::FromBits(static_cast<uint16_t>(bits)));
    if (!(std::fabs(v) <= largest)) continue;
    if (x.size() % group == 0) x.push_back(largest);
    x.push_back(v);
  }
  while (x.size() % (2 * group) != 0) x.push_back(largest);
  return x;
}

TEST(GroupVectors, EncodeEveryBfloat16) {
  constexpr int64_t kGroup = 32;
  for (const GroupCodes codes : {GroupCodes::kE4M3, GroupCodes::kE2M1}) {
    const GroupFormat format = {codes, GroupScale::kPowerOfTwo, kMxfp4Floor};
    testing::ForEachSimdTarget([&] {
      for (const int exponent : {-126, -125, -124, -123, -9, 0, 7, 100, 118}) {
        const std::vector<float> x = EveryBfloat16(format, exponent, kGroup);
        const auto count = static_cast<int64_t>(x.size()) / kGroup;
        const int64_t bytes = format.CodeBytes(kGroup);
        std::vector<uint8_t> want(count * bytes);
        std::vector<uint8_t> got(count * bytes);
        std::vector<float> scales(count);
        HWY_DYNAMIC_DISPATCH(VectorGroups)
        (format, {count, kGroup}, DataType::kBfloat16, x.data(), got.data(), scales.data());
        for (int64_t g = 0; g < count; ++g) {
          EncodeGroup(format, x.data() + g * kGroup, kGroup, want.data() + g * bytes);
          ASSERT_EQ(scales[g], std::ldexp(1.0f, exponent));
        }
        EXPECT_EQ(got, want) << "2^" << exponent;
      }
    });
  }
}

// What attention reads.
std::vector<GroupedRowFormat> ReadFormats() {
  return {Fp8Ue8m0Row(), Fp8Ue8m0Row(96, 32, 32), Fp8DsMlaRow(), Fp8DsMlaRow(64, 0, 32),
          IndexerFp8Row(128, 128), IndexerFp8Row(96, 48, false),
          // Groups and coded parts that end within a vector.
          Fp8Ue8m0Row(24, 8, 8), Fp8Ue8m0Row(72, 6, 24), Fp8DsMlaRow(40, 7, 8)};
}

std::vector<GroupedRowFormat> Formats() {
  std::vector<GroupedRowFormat> formats = ReadFormats();
  formats.insert(formats.end(), {IndexerMxfp4Row(128), IndexerMxfp4Row(64, 16)});
  return formats;
}

class GroupedRowVectors : public ::testing::TestWithParam<GroupedRowFormat> {
 protected:
  // A row at odd addresses between guards; its scales behind it as in a block of one token.
  struct Bytes {
    explicit Bytes(const GroupedRowFormat& format)
        : memory(format.TokenBytes() + 64, 0xA5),
          row(GroupedRows(format, {1, 1, format.TokenBytes()}, memory.data() + 33).AtSlot(0, 0)) {}
    std::vector<uint8_t> memory;
    RowAddress row;
  };
  void Encode(Bytes& bytes) {
    const GroupedRowFormat& format = GetParam();
    const std::vector<float> x = RandomRow(format.elements(), 3);
    tail_.resize(format.plain);
    for (int64_t i = 0; i < format.plain; ++i) tail_[i] = Bfloat16(x[format.coded + i]);
    EncodeGroupedRow(format, x.data(), tail_.data(), bytes.row);
  }
  std::vector<Bfloat16> tail_;
};

TEST_P(GroupedRowVectors, EncodeAsTheDefinition) {
  const GroupedRowFormat& format = GetParam();
  const std::vector<float> x = RandomRow(format.elements(), 3);
  Bytes want(format);
  Encode(want);
  EXPECT_EQ(want.memory[32], 0xA5);
  EXPECT_EQ(want.memory[33 + format.TokenBytes()], 0xA5);
  testing::ForEachSimdTarget([&] {
    Bytes got(format);
    HWY_DYNAMIC_DISPATCH(VectorRow)(format, x.data(), tail_.data(), got.row);
    EXPECT_EQ(got.memory, want.memory);
  });
}

class GroupedRowCodecs : public GroupedRowVectors {};

TEST_P(GroupedRowCodecs, DecodeAsTheDefinition) {
  const GroupedRowFormat& format = GetParam();
  Bytes bytes(format);
  Encode(bytes);
  std::vector<float> want(format.elements());
  DecodeGroupedRow(format, bytes.row, want.data());
  testing::ForEachSimdTarget([&] {
    std::vector<float> got(format.elements());
    // As attention reads the row: bfloat16 where the scale is no power of two.
    std::vector<float> rounded = want;
    if (format.groups.scale != GroupScale::kUe8m0) {
      for (float& v : rounded) v = static_cast<float>(Bfloat16(v));
    }
    for (const bool pieces : {false, true}) {
      HWY_DYNAMIC_DISPATCH(CodecBack)(format, bytes.row, pieces, got.data());
      EXPECT_EQ(got, rounded) << (pieces ? "LoadN" : "Load");
    }
  });
}

class E2M1Rows : public GroupedRowVectors {};

// Every code, under scales from the least to the largest: the same bits, signs of zeros included.
TEST_P(E2M1Rows, DecodeAsTheDefinition) {
  const GroupedRowFormat& format = GetParam();
  Bytes bytes(format);
  for (int64_t i = 0; i < format.CodeBytes(); ++i) {
    bytes.row.data[i] = static_cast<uint8_t>(i * 0x5F + 0x80);
  }
  for (int64_t g = 0; g < format.num_groups(); ++g) {
    bytes.row.scale[g] = static_cast<uint8_t>(g == 0 ? 0 : g == 1 ? 1 : 254 - g);
  }
  std::vector<float> want(format.elements());
  DecodeGroupedRow(format, bytes.row, want.data());
  testing::ForEachSimdTarget([&] {
    std::vector<float> got(format.elements());
    HWY_DYNAMIC_DISPATCH(E2M1Back)(format, bytes.row, got.data());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, E2M1Rows,
                         ::testing::Values(IndexerMxfp4Row(1024), IndexerMxfp4Row(128),
                                           IndexerMxfp4Row(60, 10)));
INSTANTIATE_TEST_SUITE_P(Formats, GroupedRowVectors, ::testing::ValuesIn(Formats()));
INSTANTIATE_TEST_SUITE_P(ReadFormats, GroupedRowCodecs, ::testing::ValuesIn(ReadFormats()));

}  // namespace
}  // namespace pagefuse
#endif  // HWY_ONCE
