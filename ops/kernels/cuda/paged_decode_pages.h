// SPDX-License-Identifier: Apache-2.0
// How a decode kernel gets its pages: a list of them that is cut over the CTAs, and a warp that copies them to a ring of stages while others
// compute. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/page_schedule.h"
#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_ptx.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

// Barriers of the stages, at the start of shared memory: a stage is full when its bytes have come, empty when its warps have read it. A stage
// belongs to the same warps for ever.
struct StageBarriers {
  uint32_t base;

  __device__ uint32_t full(int stage) const { return base + 16 * stage; }
  __device__ uint32_t empty(int stage) const { return base + 16 * stage + 8; }
  __device__ void Init(int stages, int readers) const {
    for (int s = 0; s < stages; ++s) {
      ptx::InitBarrier(full(s), 1);
      ptx::InitBarrier(empty(s), readers);
    }
    ptx::FenceBarriers();
  }
};
// What a CTA knows of the sequences follows them: the keys that the token of each sees, and where its pages begin.
struct KeySpan {
  int begin, end;  // empty if end <= begin

  __device__ int first_page() const { return begin / kPageTokens; }
};
struct SequenceTable {
  KeySpan* keys;    // [sequences]
  int32_t* starts;  // [sequences + 1]

  __device__ static SequenceTable Of(uint8_t* shared, int sequences) {
    auto* keys = reinterpret_cast<KeySpan*>(shared + 16 * kDecodeStages);
    return {keys, reinterpret_cast<int32_t*>(keys + sequences)};
  }
};

// Fills the table. For all threads of the CTA.
__device__ inline void CountPages(const AttentionBatch& batch, SequenceTable table) {
  int32_t* starts = table.starts;
  const int count = static_cast<int>(batch.num_sequences);
  for (int b = static_cast<int>(threadIdx.x); b < count; b += static_cast<int>(blockDim.x)) {
    const KeyInterval keys = KeysOfToken(batch, b);
    table.keys[b] = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    starts[b + 1] = PagesOf(keys, kPageTokens).count;
  }
  if (threadIdx.x == 0) starts[0] = 0;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    int before = 0;
    for (int first = 0; first < count; first += kWarp) {
      const int b = first + LaneId();
      int sum = b < count ? starts[b + 1] : 0;
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const int other = __shfl_up_sync(kAllLanes, sum, distance);
        if (LaneId() >= distance) sum += other;
      }
      if (b < count) starts[b + 1] = before + sum;
      before += __shfl_sync(kAllLanes, sum, kWarp - 1);
    }
  }
  __syncthreads();
}

// The block of an entry of the list, and its chunk of heads.
struct ListedPage {
  int block = 0, chunk = 0;
};
__device__ inline ListedPage FindPage(const AttentionBatch& batch, const PageSchedule& schedule,
                                      const KeySpan* keys, int entry) {
  const int owner = schedule.OwnerOf(entry);
  const int chunk = schedule.chunks == 1 ? 0 : owner / schedule.sequences;
  const int b = owner - chunk * schedule.sequences;
  const int page = keys[b].first_page() + entry - schedule.FirstEntryOf(owner);
  const int block = batch.block_table[b * batch.table_columns + page];
  const bool exists = block >= 0 && block < batch.num_blocks;  // the host checked
  return {exists ? block : 0, chunk};
}

// What one warp does: for each of the CTA's pages `copy(page, stage)`, by one lane, as soon as the stage is empty.
template <class Copy>
__device__ void LoadPages(const AttentionBatch& batch, const PageSchedule& schedule,
                          const KeySpan* keys, int stages, StageBarriers barriers, Copy copy) {
  const int cta = static_cast<int>(blockIdx.x);
  const int first = schedule.First(cta);
  const int count = schedule.First(cta + 1) - first;
  ListedPage listed, following;
  if (LaneId() < count) following = FindPage(batch, schedule, keys, first + LaneId());
  int stage = 0;
  uint32_t parity = 1;  // nobody has to empty a stage that was never filled
  for (int i = 0; i < count; ++i) {
    if (i % kWarp == 0) {
      listed = following;
      const int next = i + kWarp + LaneId();
      if (next < count) following = FindPage(batch, schedule, keys, first + next);
    }
    const ListedPage page = {__shfl_sync(kAllLanes, listed.block, i % kWarp),
                             __shfl_sync(kAllLanes, listed.chunk, i % kWarp)};
    ptx::WaitBarrier(barriers.empty(stage), parity);
    if (LaneId() == 0) copy(page, stage);
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// A part of a CTA's pages with one sequence and chunk.
struct Piece {
  int owner, b, chunk;
  int end;  // among the CTA's pages
  int keys_begin,
      keys_end;  // that the sequence's token sees, from the CTA's first page on as if all its pages were the sequence's
};
__device__ inline Piece PieceAt(const PageSchedule& schedule, const KeySpan* spans, int begin) {
  const int cta = static_cast<int>(blockIdx.x);
  const int first = schedule.First(cta);
  Piece piece;
  piece.owner = schedule.OwnerOf(first + begin);
  piece.chunk = schedule.chunks == 1 ? 0 : piece.owner / schedule.sequences;
  piece.b = piece.owner - piece.chunk * schedule.sequences;
  piece.end = min(schedule.First(cta + 1), schedule.EndOf(piece.owner)) - first;
  const KeySpan keys = spans[piece.b];
  // The sequence's page that the CTA's first one would be.
  const int page = keys.first_page() + first - schedule.FirstEntryOf(piece.owner);
  piece.keys_begin = keys.begin - page * kPageTokens;
  piece.keys_end = keys.end - page * kPageTokens;
  return piece;
}

// The stages that one warp reads, one after the other.
struct StageReader {
  StageBarriers barriers;
  int stages, phases;
  int stage;  // the next one
  uint32_t parity = 0;

  __device__ void Wait() const { ptx::WaitBarrier(barriers.full(stage), parity); }
  __device__ void Release() {
    __syncwarp();
    if (LaneId() == 0) ptx::Arrive(barriers.empty(stage));
    stage += phases;
    if (stage >= stages) {
      stage -= stages;
      parity ^= 1;
    }
  }
};

// Keys of a page that are seen, of 16.
struct PageMask {
  int begin, end;

  // Of a page of the CTA.
  __device__ static PageMask Of(const Piece& piece, int page) {
    const int first = page * kPageTokens;
    return {piece.keys_begin - first, piece.keys_end - first};
  }
  __device__ bool all() const { return begin <= 0 && end >= kPageTokens; }
  __device__ bool Has(int key) const { return key >= begin && key < end; }
};

}  // namespace pagefuse::cuda
