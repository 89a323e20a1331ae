// SPDX-License-Identifier: Apache-2.0
// Which cache rows a token sees, and what they hold. Indices, tables and lengths may be what a device computed: what is out of range is no row,
// and is told. Device code: for .cu files.
#pragma once

#include <limits>

#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles.h"
#include "pagefuse/ops/kernels/formats/group_format.h"

namespace pagefuse::cuda::latent {

// What the largest score of some rows is at least. It is no infinity: a score of -inf, less that, would be no number.
inline constexpr float kLeastScore = std::numeric_limits<float>::lowest();

// Places [begin, count), each of which holds a row or none: those of the first list, then those of the second; or positions of the sequence.
struct SeenRows {
  int token = 0;
  int sequence = -1;  // dense
  int first_list = 0;
  int begin = 0, count = 0;

  // Other places hold none.
  __device__ bool Has(int place) const { return place >= begin && place < count; }
};

__device__ inline bool IsFirstThread() { return threadIdx.x == 0; }

// The entries of a list that count.
__device__ inline int LengthOf(const SparseMla& call, const SparseMla::List& list, int token) {
  const auto columns = static_cast<int>(list.columns);
  if (list.lens == nullptr) return columns;
  const int32_t length = list.lens[token];
  if (length >= 0 && length <= columns) return length;
  if (IsFirstThread()) call.errors.Tell(list.lens_input, token, length);
  return length < 0 ? 0 : columns;
}

// The sequence whose tokens begin at or before this one; where starts fall, one of them.
__device__ inline int SequenceOf(const SparseMla& call, int token) {
  const int32_t* starts = call.query_start_loc;
  // Most steps have a token a sequence.
  if (token < call.sequences && starts[token] == token && starts[token + 1] > token) return token;
  int low = 0, high = static_cast<int>(call.sequences);
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (starts[middle] <= token ? low : high) = middle;
  }
  return low;
}

// How many rows of its sequence a token of it sees: the first ones.
__device__ inline int VisibleRows(const SparseMla& call, int sequence, int token) {
  const int32_t begin = call.query_start_loc[sequence], end = call.query_start_loc[sequence + 1];
  if (token < begin || token >= end) {
    if (IsFirstThread()) call.errors.Tell(call.query_start_loc_input, sequence, begin);
    return 0;
  }
  const int64_t length = call.seq_lens[sequence];
  const int64_t most = call.most_rows();
  if ((length < 0 || length > most) && IsFirstThread()) {
    call.errors.Tell(call.seq_lens_input, sequence, length);
  }
  const int64_t visible = call.is_causal ? length - (end - token) + 1 : length;
  return static_cast<int>(max(int64_t{0}, min(visible, min(most, kMostLatentRows))));
}

__device__ inline SeenRows RowsOfToken(const SparseMla& call, int token) {
  SeenRows seen;
  seen.token = token;
  if (!call.is_dense) {
    seen.first_list = seen.count = LengthOf(call, call.lists[0], token);
    if (call.num_lists > 1) seen.count += LengthOf(call, call.lists[1], token);
    return seen;
  }
  if (call.sequences == 0) return seen;
  seen.sequence = SequenceOf(call, token);
  seen.count = VisibleRows(call, seen.sequence, token);
  return seen;
}

// Tells starts that do not ascend from 0 to the number of tokens. For one CTA of a launch.
__device__ inline void CheckStarts(const SparseMla& call) {
  const int32_t* starts = call.query_start_loc;
  const int input = call.query_start_loc_input;
  if (IsFirstThread()) {
    if (starts[0] != 0) call.errors.Tell(input, 0, starts[0]);
    const int32_t last = starts[call.sequences];
    if (last != call.tokens) call.errors.Tell(input, call.sequences, last);
  }
#pragma unroll 1
  for (int64_t b = threadIdx.x; b < call.sequences; b += blockDim.x) {
    if (starts[b + 1] < starts[b]) call.errors.Tell(input, b + 1, starts[b + 1]);
  }
}

// Places and entries are below 2^31: a larger block is as good as one of 2^31 rows.
__device__ inline uint32_t BlockSizeOf(const CacheRows& rows) {
  return static_cast<uint32_t>(min(rows.block_size, int64_t{1} << 31));
}

// What the list, or the table, has at a place; -1 where there is none.
__device__ inline int32_t EntryAt(const SparseMla& call, const SeenRows& seen, int place) {
  if (!seen.Has(place)) return -1;
  if (call.is_dense) {
    const uint32_t column = static_cast<uint32_t>(place) / BlockSizeOf(call.lists[0].rows);
    return call.block_table[seen.sequence * call.table_columns + column];
  }
  const bool second = place >= seen.first_list;
  const SparseMla::List& list = call.lists[second ? 1 : 0];
  return list.indices[seen.token * list.columns + place - (second ? seen.first_list : 0)];
}

// The row of a place by its entry; null data where there is none.
__device__ inline RowAddress RowOfEntry(const SparseMla& call, const SeenRows& seen, int place,
                                        int32_t entry) {
  if (!seen.Has(place)) return {};
  const bool second = !call.is_dense && place >= seen.first_list;
  const SparseMla::List& list = call.lists[second ? 1 : 0];
  const uint32_t block_size = BlockSizeOf(list.rows);
  if (call.is_dense) {
    const uint32_t column = static_cast<uint32_t>(place) / block_size;
    if (entry >= 0 && entry < list.rows.num_blocks) {
      return list.rows.At(entry, static_cast<uint32_t>(place) - column * block_size, 0);
    }
    const int64_t element = seen.sequence * call.table_columns + column;
    call.errors.Tell(call.block_table_input, element, entry);
    return {};
  }
  if (entry < 0) return {};
  if (entry >= list.rows.num_blocks * list.rows.block_size) {
    const int column = place - (second ? seen.first_list : 0);
    call.errors.Tell(list.indices_input, seen.token * list.columns + column, entry);
    return {};
  }
  const uint32_t block = static_cast<uint32_t>(entry) / block_size;
  return list.rows.At(block, static_cast<uint32_t>(entry) - block * block_size, 0);
}

// What a split has of a token's places.
struct Places {
  int begin = 0, end = 0;
};
__device__ inline Places SplitOf(const SeenRows& seen, int splits, int split) {
  const int tiles = (seen.count + kLatentTileRows - 1) / kLatentTileRows;
  const int part = (tiles + splits - 1) / splits * kLatentTileRows;
  return {min(split * part, seen.count), min((split + 1) * part, seen.count)};
}

// --- what a row holds ---

// A pointer that lane `lane` has.
__device__ inline const uint8_t* OfLane(const uint8_t* pointer, int lane) {
  const auto bits = reinterpret_cast<unsigned long long>(pointer);
  return reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, bits, lane));
}

// Codes times scales, rounded to bfloat16, then the bfloat16 elements, which may be unaligned. `scale` is that of the first group.
__device__ inline void DecodeCodedRow(const GroupedRowFormat& format, const uint8_t* data,
                                      const uint8_t* scale, float* to) {
  const int coded = static_cast<int>(format.coded), group = static_cast<int>(format.group);
  const int scale_bytes = static_cast<int>(format.groups.ScaleBytes());
#pragma unroll 2
  for (int d = LaneId(); d < coded; d += kWarp) {
    const float factor = LoadGroupScale(format.groups.scale, scale + d / group * scale_bytes);
    to[d] = static_cast<float>(Bfloat16(__fmul_rn(DecodeFloat<E4M3FNFormat>(data[d]), factor)));
  }
  const uint8_t* plain = data + format.PlainOffset();
  for (int i = LaneId(); i < static_cast<int>(format.plain); i += kWarp) {
    const auto bits = static_cast<uint16_t>(plain[2 * i] | plain[2 * i + 1] << 8);
    to[coded + i] = DecodeFloat<Bfloat16Format>(bits);
  }
}

// A row as attention reads it, by one warp: to[0, head_size).
__device__ inline void DecodeLatentRow(const SparseMla& call, const uint8_t* data,
                                       const uint8_t* scale, float* to) {
  const auto same = [](float x) { return x; };
  if (!call.plain) return DecodeCodedRow(call.grouped, data, scale, to);
  switch (call.element) {
    case DataType::kFloat16:
      return DecodeElements<Float16>(data, call.head_size, to, same);
    case DataType::kBfloat16:
      return DecodeElements<Bfloat16>(data, call.head_size, to, same);
    default:
      return DecodeElements<float>(data, call.head_size, to, same);
  }
}

}  // namespace pagefuse::cuda::latent
