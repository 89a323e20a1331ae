// SPDX-License-Identifier: Apache-2.0
// Scales of groups against exact arithmetic, rows against bytes worked out by hand, and where rows
// lie in a block.
#include "pagefuse/ops/kernels/formats/group_format.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse {
namespace {

TEST(CeilLog2, IsTheSmallestPowerThatIsNotLess) {
  for (int e = -149; e <= 127; ++e) {
    const float power = static_cast<float>(std::ldexp(1.0, e));
    EXPECT_EQ(CeilLog2(power), e);
    EXPECT_EQ(CeilLog2(std::nextafter(power, INFINITY)), e + 1);
    if (e > -149) {
      EXPECT_EQ(CeilLog2(std::nextafter(power, 0.0f)), e > -148 ? e : -149) << e;
    }
  }
  EXPECT_EQ(CeilLog2(std::numeric_limits<float>::infinity()), 128);
}

TEST(Scale, OfEveryBfloat16MagnitudeIsTheLeastThatFits) {
  const GroupFormat fp8 = {GroupCodes::kE4M3, GroupScale::kUe8m0, kCacheScaleFloor};
  const GroupFormat fp4 = {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float amax = std::bit_cast<float>(bits << 16);
    const double wide8 = std::max<double>(amax, kCacheScaleFloor);
    const double wide4 = std::max<double>(amax, kMxfp4Floor);
    ASSERT_EQ(fp8.ScaleOf(amax), std::exp2(std::ceil(std::log2(wide8 / 448)))) << amax;
    ASSERT_GE(fp4.ScaleOf(amax) * 6.0, wide4) << amax;
    ASSERT_LT(fp4.ScaleOf(amax) * 3.0, wide4) << amax;
  }
}

TEST(Scale, Bounds) {
  const GroupFormat cache = {GroupCodes::kE4M3, GroupScale::kUe8m0, kCacheScaleFloor};
  const GroupFormat output = {GroupCodes::kE4M3, GroupScale::kPowerOfTwo, kOutputScaleFloor};
  const GroupFormat fp4 = {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  const GroupFormat mla = {GroupCodes::kE4M3, GroupScale::kFloat, kDsMlaFloor};
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(EncodeUe8m0(CeilLog2(cache.ScaleOf(0))), 105);
  EXPECT_EQ(output.ScaleOf(0), 0x1p-42f);
  EXPECT_EQ(EncodeUe8m0(CeilLog2(fp4.ScaleOf(0))), 1);
  EXPECT_EQ(mla.ScaleOf(0), 0x1p-126f);
  EXPECT_EQ(mla.ScaleOf(448 * 3), 3);
  EXPECT_EQ(cache.ScaleOf(448), 1);
  EXPECT_EQ(cache.ScaleOf(std::nextafter(448.0f, 500.0f)), 2);
  EXPECT_EQ(cache.ScaleOf(infinity), infinity);
  EXPECT_EQ(EncodeUe8m0(CeilLog2(cache.ScaleOf(infinity))), 255);
  EXPECT_EQ(fp4.ScaleOf(infinity), 0x1p127f);
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(DecodeUe8m0(static_cast<uint8_t>(byte)), std::ldexp(1.0f, byte - 127));
    EXPECT_EQ(EncodeUe8m0(CeilLog2(DecodeUe8m0(static_cast<uint8_t>(byte)))), byte);
  }
  EXPECT_EQ(DecodeUe8m0(255), infinity);
}

TEST(Group, TiesGoToTheEvenCodeAndZeroKeepsItsSign) {
  const GroupFormat fp4 = {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  const std::vector<float> x = {0.25f, -0.25f, 0.75f, 1.25f, -1.75f, 2.5f, 3.5f, -5, -0.0f, 6};
  std::vector<uint8_t> codes(5);
  EXPECT_EQ(EncodeGroup(fp4, x.data(), 10, codes.data()), 1);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0x80, 0x22, 0x4C, 0xE6, 0x78}));
  std::vector<float> back(10);
  DecodeGroup(GroupCodes::kE2M1, codes.data(), 2, 10, back.data());
  EXPECT_EQ(back, (std::vector<float>{0, -0.0f, 2, 2, -4, 4, 8, -8, -0.0f, 12}));
}

TEST(Group, NanIsNotALargestMagnitude) {
  const GroupFormat fp8 = {GroupCodes::kE4M3, GroupScale::kUe8m0, kCacheScaleFloor};
  const std::vector<float> x = {NAN, 448, 1};
  std::vector<uint8_t> codes(3);
  EXPECT_EQ(EncodeGroup(fp8, x.data(), 3, codes.data()), 1);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0x7F, 0x7E, 0x38}));
}

TEST(GroupedRow, SizesOfThePublishedFormats) {
  const GroupedRowFormat attention = Fp8Ue8m0Row();
  EXPECT_EQ(attention.elements(), 512);
  EXPECT_EQ(attention.DataBytes(), 576);
  EXPECT_EQ(attention.ScaleBytes(), 8);
  EXPECT_EQ(GroupedBlockBytes(attention, 64), 37440);
  EXPECT_EQ(GroupedBlockBytes(attention, 2), 1728);
  EXPECT_EQ(Fp8DsMlaRow().TokenBytes(), 656);
  EXPECT_EQ(Fp8DsMlaRow().DataBytes(), 656);
  EXPECT_EQ(Fp8DsMlaRow().PlainOffset(), 528);
  EXPECT_EQ(IndexerFp8Row(128, 128).TokenBytes(), 132);
  EXPECT_EQ(IndexerMxfp4Row(128).TokenBytes(), 68);
  EXPECT_EQ(IndexerMxfp4Row(128).ScaleBytes(), 4);
}

// Slot 5 of blocks of 4: offset 1 of block 1.
TEST(GroupedRow, LiesWhereTheLayoutSays) {
  uint8_t cache[8192];
  const auto at = [&](const GroupedRowFormat& format, int64_t block_bytes) {
    const RowAddress row = GroupedRows(format, {2, 4, block_bytes}, cache).AtSlot(5, 0);
    return std::make_pair(row.data - cache, row.scale - cache);
  };
  EXPECT_EQ(at(Fp8Ue8m0Row(), 2341), std::make_pair(2341L + 576, 2341L + 4 * 576 + 8));
  EXPECT_EQ(at(Fp8DsMlaRow(), 4 * 656), std::make_pair(5L * 656, 5L * 656 + 512));
  EXPECT_EQ(at(IndexerFp8Row(128, 128), 600), std::make_pair(600L + 128, 600L + 512 + 4));
  EXPECT_EQ(at(IndexerMxfp4Row(128), 300), std::make_pair(300L + 64, 300L + 256 + 4));
  const RowAddress plain = PlainRows(32, {2, 4, 128}, cache).AtSlot(5, 0);
  EXPECT_EQ(plain.data - cache, 160);
  EXPECT_EQ(plain.scale, nullptr);
}

}  // namespace
}  // namespace pagefuse
