// SPDX-License-Identifier: Apache-2.0
// Rows whose elements are quantised in groups, and where the bytes of such rows lie in a paged
// cache: the caches of DeepSeek's latent attention and of its indexer.
//
// A row of n elements has codes for its first `coded` elements, one scale for `group` of them, and
// the others as bfloat16. Two layouts:
//
//   kSplit    block:  | codes, bfloat16 of token 0 | of token 1 | ... | scales 0 | scales 1 | ... |
//   kInline   token:  | codes | scales | bfloat16 |, tokens one behind the other
//
// with any padding up to the block's stride. In vectors: grouped_row-inl.h. docs/formats.md draws
// the published formats.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

enum class GroupedLayout { kSplit, kInline };

// What is stored for one row. A value type; sizes are in bytes, counts in elements.
struct GroupedRowFormat {
  GroupFormat groups;
  GroupedLayout layout = GroupedLayout::kSplit;
  int64_t coded = 0;  // a multiple of `group`
  int64_t group = 1;
  int64_t plain = 0;          // bfloat16 elements behind the coded ones
  int64_t scale_padding = 0;  // bytes behind a token's scales, written as 0

  constexpr int64_t elements() const { return coded + plain; }
  constexpr int64_t num_groups() const { return coded / group; }
  constexpr int64_t CodeBytes() const { return groups.CodeBytes(coded); }
  constexpr int64_t ScaleBytes() const {
    return num_groups() * groups.ScaleBytes() + scale_padding;
  }
  // Bytes from a token's data to the next one's, in the data part of a block.
  constexpr int64_t DataBytes() const {
    return CodeBytes() + 2 * plain + (layout == GroupedLayout::kInline ? ScaleBytes() : 0);
  }
  constexpr int64_t TokenBytes() const { return CodeBytes() + 2 * plain + ScaleBytes(); }
  // From the start of a token's data to its first bfloat16.
  constexpr int64_t PlainOffset() const {
    return CodeBytes() + (layout == GroupedLayout::kInline ? ScaleBytes() : 0);
  }
  // Where the scales of a block's first token start, from the block's start.
  constexpr int64_t ScaleBase(int64_t block_size) const {
    return layout == GroupedLayout::kInline ? CodeBytes() : block_size * DataBytes();
  }

  bool operator==(const GroupedRowFormat&) const = default;
};

// The published formats, with their sizes as data.
//
// "fp8_ue8m0": the attention caches of DeepSeek-V4. 448 + 64 elements, groups of 64: 576 bytes of
// data and 7 scale bytes and a zero, split.
GroupedRowFormat Fp8Ue8m0Row(int64_t coded = 448, int64_t plain = 64, int64_t group = 64);
// "fp8_ds_mla": the attention cache of DeepSeek-V3.2. 512 + 64 elements, a float scale for 128:
// 656 bytes, inline.
GroupedRowFormat Fp8DsMlaRow(int64_t coded = 512, int64_t plain = 64, int64_t group = 128);
// "indexer_fp8": codes and a float scale for `group` elements, split; 132 bytes for 128 elements.
// `power_of_two`: the scale is one.
GroupedRowFormat IndexerFp8Row(int64_t size, int64_t group, bool power_of_two = true);
// "indexer_mxfp4": packed e2m1 and a UE8M0 byte for 32 elements, split; 68 bytes for 128 elements.
GroupedRowFormat IndexerMxfp4Row(int64_t size, int64_t group = 32);

// The elements with one scale that pagefuse chooses for `coded` of them where the published format
// has `published`: that many, or as many as the largest power of two that divides both; 0 where
// that is so little that scales would take more than an eighth of the row.
int64_t GroupSizeFor(int64_t coded, int64_t published);

// The stride of a block that pagefuse gives a cache of its own: its tokens' bytes, for "fp8_ue8m0"
// rounded up to a multiple of the data of a token, as the public kernels want it.
int64_t GroupedBlockBytes(const GroupedRowFormat& format, int64_t block_size);

// Encodes a row: x[0, coded) in groups, tail[0, plain) as it is. `tail` needs no alignment; null
// where plain is 0. Writes DataBytes() at row.data and ScaleBytes() at row.scale.
void EncodeGroupedRow(const GroupedRowFormat& format, const float* x, const void* tail,
                      RowAddress row);

// Decodes a row: x[0, elements()). Codes times scales are rounded to float once.
void DecodeGroupedRow(const GroupedRowFormat& format, RowAddress row, float* x);

// A paged cache of uint8: how many blocks of how many tokens, and the bytes from one block to the
// next, at least block_size * TokenBytes().
struct PagedBytes {
  int64_t num_blocks = 0;
  int64_t block_size = 0;
  int64_t block_bytes = 0;
};

// Rows of such a cache; RowAddress is rows.AtSlot(slot, 0).
CacheRows GroupedRows(const GroupedRowFormat& format, const PagedBytes& paged, void* cache);

// Rows of `row_bytes` bytes without scales: bfloat16 and float caches (compressor state).
CacheRows PlainRows(int64_t row_bytes, const PagedBytes& paged, void* cache);

}  // namespace pagefuse
