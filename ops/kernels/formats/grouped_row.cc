// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/grouped_row.h"

#include <cstring>
#include <numeric>

namespace pagefuse {

GroupedRowFormat Fp8Ue8m0Row(int64_t coded, int64_t plain, int64_t group) {
  return {.groups = {GroupCodes::kE4M3, GroupScale::kUe8m0, kCacheScaleFloor},
          .coded = coded,
          .group = group,
          .plain = plain,
          .scale_padding = 1};
}

GroupedRowFormat Fp8DsMlaRow(int64_t coded, int64_t plain, int64_t group) {
  return {.groups = {GroupCodes::kE4M3, GroupScale::kFloat, kDsMlaFloor},
          .layout = GroupedLayout::kInline,
          .coded = coded,
          .group = group,
          .plain = plain};
}

GroupedRowFormat IndexerFp8Row(int64_t size, int64_t group, bool power_of_two) {
  const GroupScale scale = power_of_two ? GroupScale::kPowerOfTwo : GroupScale::kFloat;
  return {.groups = {GroupCodes::kE4M3, scale, kCacheScaleFloor}, .coded = size, .group = group};
}

GroupedRowFormat IndexerMxfp4Row(int64_t size, int64_t group) {
  return {.groups = {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor},
          .coded = size,
          .group = group};
}

int64_t GroupSizeFor(int64_t coded, int64_t published) {
  constexpr int64_t kLeast = 8;
  const int64_t group = std::gcd(coded, published);
  return coded > 0 && group >= kLeast ? group : 0;
}

int64_t GroupedBlockBytes(const GroupedRowFormat& format, int64_t block_size) {
  const int64_t bytes = block_size * format.TokenBytes();
  if (format.layout == GroupedLayout::kInline || format.plain == 0) return bytes;
  const int64_t unit = format.DataBytes();
  return (bytes + unit - 1) / unit * unit;
}

void EncodeGroupedRow(const GroupedRowFormat& format, const float* x, const void* tail,
                      RowAddress row) {
  const int64_t code_bytes = format.groups.CodeBytes(format.group);
  for (int64_t g = 0; g < format.num_groups(); ++g) {
    const float scale =
        EncodeGroup(format.groups, x + g * format.group, format.group, row.data + g * code_bytes);
    StoreGroupScale(format.groups.scale, scale, row.scale + g * format.groups.ScaleBytes());
  }
  std::memset(row.scale + format.ScaleBytes() - format.scale_padding, 0, format.scale_padding);
  if (format.plain > 0) std::memcpy(row.data + format.PlainOffset(), tail, 2 * format.plain);
}

void DecodeGroupedRow(const GroupedRowFormat& format, RowAddress row, float* x) {
  const int64_t code_bytes = format.groups.CodeBytes(format.group);
  for (int64_t g = 0; g < format.num_groups(); ++g) {
    const float scale =
        LoadGroupScale(format.groups.scale, row.scale + g * format.groups.ScaleBytes());
    DecodeGroup(format.groups.codes, row.data + g * code_bytes, scale, format.group,
                x + g * format.group);
  }
  for (int64_t i = 0; i < format.plain; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row.data + format.PlainOffset() + 2 * i, sizeof(bits));
    x[format.coded + i] = DecodeFloat<Bfloat16Format>(bits);
  }
}

CacheRows GroupedRows(const GroupedRowFormat& format, const PagedBytes& paged, void* cache) {
  CacheRows rows = PlainRows(format.DataBytes(), paged, cache);
  rows.scales = rows.data + format.ScaleBase(paged.block_size);
  const bool inline_scales = format.layout == GroupedLayout::kInline;
  rows.scale_strides = {.block = paged.block_bytes,
                        .row = inline_scales ? format.DataBytes() : format.ScaleBytes()};
  return rows;
}

CacheRows PlainRows(int64_t row_bytes, const PagedBytes& paged, void* cache) {
  CacheRows rows;
  rows.data = static_cast<uint8_t*>(cache);
  rows.num_blocks = paged.num_blocks;
  rows.block_size = paged.block_size;
  rows.data_strides = {.block = paged.block_bytes, .row = row_bytes};
  return rows;
}

}  // namespace pagefuse
