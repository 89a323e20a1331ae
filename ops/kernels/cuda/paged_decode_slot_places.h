// SPDX-License-Identifier: Apache-2.0
// Where the decode over TurboQuant slots has its stages and its table of centroids, and where its lanes read in a page. Device code: for .cu
// files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_softmax.h"

namespace pagefuse::cuda::slots {

constexpr int kSize = 128;  // channels
constexpr int kWords = 16;  // of a row
constexpr int kWarps = DecodeWarps(DecodeFormat::kTurboQuant, kSize, false);
// The warp that loads is one of a warp group, which gives its registers to the others.
constexpr int kThreads = (kWarps + 4) * kWarp;
// Of a slot.
constexpr int kNormOffset = kSize / 2;
constexpr int kValueOffset = kNormOffset + 2;
constexpr int kScaleOffset = kValueOffset + kSize / 2;
constexpr int kZeroOffset = kScaleOffset + 2;
// A table row of 32 copies is followed by as many bytes that nobody reads: so the address of an entry is one byte permutation.
constexpr int kTableBytes = 1 << 16;
constexpr int kTableRow = 256;
constexpr uint32_t kEntryAddress =
    0x7604;  // bytes: of the lane, of the code, of the table, of the table

__device__ inline float LoadHalf(uint32_t address) {
  return HalfToFloat(ptx::LoadShared<uint16_t>(address));
}
// A value that is not computed again where it is used.
__device__ inline uint32_t Keep(uint32_t x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Stages before the table and behind it.
struct StagePlaces {
  uint32_t queries, first, table;
  int before, bytes;

  __device__ static StagePlaces Of(uint32_t base, int sequences, int query_bytes, int stage_bytes) {
    StagePlaces places;
    places.queries = base + DecodeHeaderBytes(sequences);
    places.first = places.queries + query_bytes;
    places.table = (places.first + kTableBytes - 1) / kTableBytes * kTableBytes;
    places.before = static_cast<int>(places.table - places.first) / stage_bytes;
    places.bytes = stage_bytes;
    return places;
  }
  __device__ uint32_t At(int stage) const {
    if (stage < before) return first + stage * bytes;
    return table + kTableBytes + (stage - before) * bytes;
  }
};

// Where a lane reads in a page, from its start.
struct LanePlaces {
  uint32_t token;  // bytes of a token
  uint32_t keys, last_key, last_key_selector;
  uint32_t fields;  // of the slot of key g
  uint32_t values, last_value, last_value_selector;
  NibbleRow key_row, value_row;

  __device__ static LanePlaces Of(int head, int slot_bytes, int heads) {
    const int g = LaneId() / 4, t = LaneId() % 4;
    LanePlaces at;
    const int slot = head * slot_bytes;
    at.key_row.odd = slot % 4 != 0;
    at.value_row.odd = (slot + kValueOffset) % 4 != 0;
    at.token = heads * slot_bytes;
    at.keys = Keep(g * at.token + slot + (at.key_row.odd ? 2 : 0) + 4 * t);
    at.fields = Keep(g * at.token + slot);
    at.values = Keep(2 * t * at.token + slot + kValueOffset + (at.value_row.odd ? 2 : 0) + 4 * g);
    // The last word of an odd row is joined of two.
    const bool joins_key = at.key_row.odd && t == 3, joins_value = at.value_row.odd && g == 7;
    at.last_key = Keep(joins_key ? at.keys - 16 : at.keys + 48);
    at.last_key_selector = joins_key ? 0x5432 : 0x3210;
    at.last_value = Keep(joins_value ? at.values - 32 : at.values + 32);
    at.last_value_selector = joins_value ? 0x5432 : 0x3210;
    return at;
  }
};

}  // namespace pagefuse::cuda::slots
