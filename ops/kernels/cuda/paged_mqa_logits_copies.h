// SPDX-License-Identifier: Apache-2.0
// Shared memory of paged index scores, and the warp that fills it. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/mqa_logits_ptx.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/paged_mqa_logits_works.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda::paged_tiles {

inline constexpr int kGroup = 128;  // threads of a warp group
inline constexpr int kConsumers = 3;
// A stage belongs to one consumer for ever.
inline constexpr int kStages = 15;
static_assert(kStages % kConsumers == 0);
inline constexpr int kCodeBytes = kPagedTile * kTileSize, kScaleBytes = kPagedTile * 4;
inline constexpr int kStageBytes = 9 * 1024;
static_assert(kCodeBytes + kScaleBytes <= kStageBytes);
inline constexpr int kQueryBytes = kTileHeads * kTileSize * 2;
inline constexpr int kAlignment = 1024, kBarrierBytes = 1024;
inline constexpr int kTableBytes = 8 * 1024;
static_assert((kMostPagedGroups + 1) * 4 <= kTableBytes);
inline constexpr int kSharedBytes =
    kAlignment + kBarrierBytes + kTableBytes + kMostPagedRows * kQueryBytes + kStages * kStageBytes;

inline constexpr unsigned kAll = 0xFFFFFFFF;

struct Places {
  uint8_t* base;
  __device__ uint32_t full(int stage) const { return ptx::SharedAddress(base) + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ int32_t* begins() const { return reinterpret_cast<int32_t*>(base + kBarrierBytes); }
  __device__ uint8_t* query(int row) const {
    return base + kBarrierBytes + kTableBytes + row * kQueryBytes;
  }
  __device__ uint8_t* stage(int index) const { return query(kMostPagedRows) + index * kStageBytes; }
};

// begins[i]: tiles of the groups before group i. All threads come here.
__device__ inline void CountTiles(const MqaLogits& call, int groups, int32_t* begins) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  for (int i = thread; i < groups; i += static_cast<int>(blockDim.x)) {
    begins[i + 1] = PagedGroupAt(call, i).tiles;
  }
  if (thread == 0) begins[0] = 0;
  __syncthreads();
  if (thread < 32) {
    int before = 0;
    for (int first = 0; first < groups; first += 32) {
      const int i = first + lane;
      int sum = i < groups ? begins[i + 1] : 0;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(kAll, sum, distance);
        if (lane >= distance) sum += other;
      }
      if (i < groups) begins[i + 1] = before + sum;
      before += __shfl_sync(kAll, sum, 31);
    }
  }
  __syncthreads();
}

struct Range {
  int first, end;
};

// What one copy brings: keys of a block from `row` on; nothing if the cache has no such block.
struct Copy {
  int block = -1, row = 0;
};

// Copy `slot` of a thread block's share, of `copies` a tile. The block is as the table says it, unchecked:
// so nothing waits here until the table is read.
__device__ inline Copy CopyAt(const MqaLogits& call, const int32_t* begins, int groups, Range range,
                              int slot, int copies) {
  const int tile = range.first + slot / copies;
  if (tile >= range.end) return {};
  const int index = GroupOfTile(begins, groups, tile);
  const PagedGroup group = PagedGroupAt(call, index);
  const auto block_size = static_cast<int>(call.keys.block_size);
  const int key = (tile - begins[index]) * kPagedTile + slot % copies * KeysOfCopy(block_size);
  const int column = key / block_size;
  if (key >= group.keys || column >= call.table_columns) return {};
  return {call.block_table[group.sequence * call.table_columns + column],
          key - column * block_size};
}

// One warp copies the tiles of its thread block, in order. Its lanes look up 32 places at a time, one turn
// ahead, and each starts its own copies, with addresses that all have formed at once.
__device__ inline void CopyAll(const MqaLogits& call, const Places& at, int groups, Range range,
                               const CUtensorMap* keys) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = KeysOfCopy(call.keys.block_size), copies = kPagedTile / rows;
  const int slots = (range.end - range.first) * copies;
  const int bytes = rows * (kTileSize + 4);
  const uint8_t* scales = call.keys.scales;
  const int64_t stride = call.keys.scale_strides.block;
  const auto blocks = static_cast<uint32_t>(call.keys.num_blocks);
  const uint32_t barriers = at.full(0), stages = ptx::SharedAddress(at.stage(0));
  int stage = 0, part = 0;
  uint32_t parity = 1;  // of a barrier that is new, the phase before counts as ended
  Copy next = CopyAt(call, at.begins(), groups, range, lane, copies);
  for (int first = 0; first < slots; first += 32) {
    const Copy copy = next;
    const bool some = static_cast<uint32_t>(copy.block) < blocks;
    const uint8_t* from = scales + copy.block * stride + copy.row * 4;
    next = CopyAt(call, at.begins(), groups, range, first + 32 + lane, copies);
    const int count = min(32, slots - first);
    for (int i = 0; i < count; ++i) {
      const uint32_t full = barriers + 8 * stage, to = stages + stage * kStageBytes;
      if (part == 0) ptx::WaitBarrier(full + 8 * kStages, parity);
      const bool last = part + 1 == copies;
      if (lane == i) {
        last ? ptx::ArriveAndExpect(full, some ? bytes : 0) : ptx::Expect(full, some ? bytes : 0);
        if (some) {
          ptx::CopyTile3d(to + part * rows * kTileSize, keys, 0, copy.row, copy.block, full);
          ptx::CopyBulk(to + kCodeBytes + part * rows * 4, from, rows * 4, full);
        }
      }
      __syncwarp();
      ++part;
      if (last) {
        part = 0;
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
    }
  }
}

}  // namespace pagefuse::cuda::paged_tiles
