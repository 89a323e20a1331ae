// SPDX-License-Identifier: Apache-2.0
// Where the decode over TurboQuant slots has its stages and its table of centroids, and where its lanes read in a page. Device code: for .cu
// files.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_slot_format.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_softmax.h"

namespace pagefuse::cuda::slots {

constexpr int kWarps = DecodeWarps(DecodeFormat::kTurboQuant, kSize, false);
// The warp that loads is one of a warp group, which gives its registers to the others.
constexpr int kThreads = (kWarps + 4) * kWarp;
// Of a table of four bits, bytes: of the lane, of the code, of the table, of the table.
constexpr uint32_t kEntryAddress = 0x7604;

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

// Stages before the table, which lies at a multiple of its size, and behind it.
struct StagePlaces {
  uint32_t queries, first, table, behind;
  int before, bytes;

  template <class Format>
  __device__ static StagePlaces Of(uint32_t base, const DecodePlan& plan) {
    constexpr int kAlignment = Format::kHasCentroids ? Format::kTableBytes : 1;
    StagePlaces places;
    places.queries = base + DecodeHeaderBytes(plan.listed);
    places.first = places.queries + plan.query_bytes + plan.result_bytes;
    places.table = (places.first + kAlignment - 1) / kAlignment * kAlignment;
    places.behind = places.table + Format::kTableBytes;
    places.before = static_cast<int>(places.table - places.first) / plan.stage_bytes;
    places.bytes = plan.stage_bytes;
    return places;
  }
  __device__ uint32_t At(int stage) const {
    if (stage < before) return first + stage * bytes;
    return behind + (stage - before) * bytes;
  }
};

// Where a lane reads in a page, from its start. Rows that begin at 2 mod 4 are `odd`.
struct LanePlaces {
  uint32_t token;  // bytes of a token
  uint32_t keys, last_key, last_key_selector;
  uint32_t fields;  // of the slot of key g
  uint32_t values, last_value, last_value_selector;
  bool odd_key, odd_value;

  template <class Format>
  __device__ static LanePlaces Of(int head, int slot_bytes, int heads) {
    const int g = LaneId() / 4, t = LaneId() % 4;
    LanePlaces at = {};
    const int slot = head * slot_bytes;
    at.odd_key = slot % 4 != 0;
    at.odd_value = (slot + Format::kValueOffset) % 4 != 0;
    at.token = heads * slot_bytes;
    at.fields = Keep(g * at.token + slot);
    if constexpr (Format::kKeyBits == 3) {
      // 12 bytes, in the words that they touch.
      at.keys = Keep(g * at.token + slot - (at.odd_key ? 2 : 0) + 12 * t);
      at.last_key_selector = Keep(at.odd_key ? 0x5432 : 0x3210);
    } else {
      at.keys = Keep(g * at.token + slot + (at.odd_key ? 2 : 0) + 4 * t);
    }
    if constexpr (Format::kKeyBits == 4) {
      // The last word of an odd row is joined of two.
      const bool joins_key = at.odd_key && t == 3;
      at.last_key = Keep(joins_key ? at.keys - 16 : at.keys + 48);
      at.last_key_selector = joins_key ? 0x5432 : 0x3210;
    }
    const uint32_t values = 2 * t * at.token + slot + Format::kValueOffset;
    if constexpr (Format::kValueBits == 4) {
      at.values = Keep(values + (at.odd_value ? 2 : 0) + 4 * g);
      const bool joins_value = at.odd_value && g == 7;
      at.last_value = Keep(joins_value ? at.values - 32 : at.values + 32);
      at.last_value_selector = joins_value ? 0x5432 : 0x3210;
    } else {
      // Six bytes, in the two words that they touch; selectors of the first four and of the others.
      const bool odd = (values + 6 * g) % 4 != 0;
      at.values = Keep(values + 6 * g - (odd ? 2 : 0));
      at.last_value_selector = Keep(odd ? 0x5432 : 0x3210);
    }
    return at;
  }
};

}  // namespace pagefuse::cuda::slots
