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
  // A stage a thread; a CTA has more threads.
  __device__ void Init(int stages, int readers) const {
    const auto stage = static_cast<int>(threadIdx.x);
    if (stage >= stages) return;
    ptx::InitBarrier(full(stage), 1);
    ptx::InitBarrier(empty(stage), readers);
    ptx::FenceBarriers();
  }
};
// What a CTA knows of the sequences follows them: the keys that the token of each sees, and where its pages begin.
struct KeySpan {
  int begin, end;  // empty if end <= begin

  __device__ int first_page() const {
    return static_cast<int>(static_cast<uint32_t>(begin) / kPageTokens);
  }
};
struct SequenceTable {
  KeySpan* keys;    // [sequences]
  int32_t* starts;  // [sequences + 1]

  __device__ static SequenceTable Of(uint8_t* shared, int sequences) {
    auto* keys = reinterpret_cast<KeySpan*>(shared + kSequenceTable);
    return {keys, reinterpret_cast<int32_t*>(keys + sequences)};
  }
};

// Fills the table. For all threads of the CTA.
__device__ inline void CountPages(const AttentionBatch& batch, int sequences, SequenceTable table) {
  int32_t* starts = table.starts;
#pragma unroll 1
  for (int b = static_cast<int>(threadIdx.x); b < sequences; b += static_cast<int>(blockDim.x)) {
    const KeyInterval keys = KeysOfToken(batch, b);
    table.keys[b] = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    starts[b + 1] = PagesOf(keys, kPageTokens).count;
  }
  if (threadIdx.x == 0) starts[0] = 0;
  __syncthreads();
  if (sequences == 1) return;
  if (threadIdx.x < kWarp) {
    int before = 0;
#pragma unroll 1
    for (int first = 0; first < sequences; first += kWarp) {
      const int b = first + LaneId();
      int sum = b < sequences ? starts[b + 1] : 0;
#pragma unroll 1
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const int other = __shfl_up_sync(kAllLanes, sum, distance);
        if (LaneId() >= distance) sum += other;
      }
      if (b < sequences) starts[b + 1] = before + sum;
      before += __shfl_sync(kAllLanes, sum, kWarp - 1);
    }
  }
  __syncthreads();
}

// The pages of a CTA: `count` entries from `first` on of a list of all sequences and chunks, or of one of a single sequence and chunk.
struct CtaPages {
  bool is_single = false;
  int cta = 0;
  int first = 0, count = 0;
  // Of a single sequence.
  int sequence = 0, chunk = 0;
  KeySpan span = {};
  // Of all.
  PageSchedule schedule;
  const KeySpan* keys = nullptr;
};

// Brings near what is read for the list of all pages, while the kernel before may still write it.
__device__ inline void FetchLists(const AttentionBatch& batch, const DecodePlan& plan) {
  constexpr int kOfLine = 32;  // numbers
  const int i = static_cast<int>(threadIdx.x) * kOfLine;
  if (plan.cluster > 0 || i >= plan.listed) return;
  ptx::FetchLine(batch.seq_lens + i);
  if (batch.query_start_loc != nullptr) ptx::FetchLine(batch.query_start_loc + i);
}

// Pages of the sequence and chunk that the cluster has: those of grids [chunks, sequences, CTAs of a cluster].
__device__ inline CtaPages ListOwnPages(const AttentionBatch& batch, const DecodePlan& plan) {
  CtaPages pages;
  pages.is_single = true;
  pages.cta = static_cast<int>(blockIdx.x);
  pages.sequence = static_cast<int>(blockIdx.y);
  pages.chunk = static_cast<int>(blockIdx.z);
  const KeyInterval keys = KeysOfToken(batch, pages.sequence);
  pages.span = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
  const int count = PagesOf(keys, kPageTokens).count;
  pages.first = (count * pages.cta) >> plan.cluster_log2;
  pages.count = ((count * (pages.cta + 1)) >> plan.cluster_log2) - pages.first;
  return pages;
}

// Pages of all sequences and chunks; where sequences' pages begin goes to `starts_out` too. For all threads of the CTA.
__device__ inline CtaPages ListAllPages(const AttentionBatch& batch, const DecodePlan& plan,
                                        uint8_t* shared, int32_t* starts_out) {
  const SequenceTable table = SequenceTable::Of(shared, plan.listed);
  CountPages(batch, plan.listed, table);
  if (blockIdx.x == 0) {
    for (auto b = static_cast<int>(threadIdx.x); b <= plan.listed;
         b += static_cast<int>(blockDim.x)) {
      starts_out[b] = table.starts[b];
    }
  }
  CtaPages pages;
  pages.cta = static_cast<int>(blockIdx.x);
  pages.schedule = PageSchedule::Of(table.starts, plan.listed, plan.chunks, plan.ctas, plan.phases);
  pages.keys = table.keys;
  if (pages.cta < pages.schedule.ctas) {
    pages.first = pages.schedule.First(pages.cta);
    pages.count = pages.schedule.First(pages.cta + 1) - pages.first;
  }
  return pages;
}

// The block of an entry of the list, and its chunk of heads.
struct ListedPage {
  int block = 0, chunk = 0;
};
__device__ inline ListedPage FindPage(const AttentionBatch& batch, const CtaPages& pages,
                                      int entry) {
  int b = pages.sequence, chunk = pages.chunk;
  int page = pages.span.first_page() + entry;
  if (!pages.is_single) {
    const PageSchedule::Place place = pages.schedule.PlaceOf(entry);
    b = place.sequence, chunk = place.chunk;
    page = pages.keys[b].first_page() + entry - place.first;
  }
  const int block = batch.block_table[b * static_cast<int>(batch.table_columns) + page];
  const bool exists = static_cast<uint32_t>(block) < static_cast<uint32_t>(batch.num_blocks);
  return {exists ? block : 0, chunk};  // the host checked
}

// What one warp does: for each of the CTA's pages `copy(page, stage)`, by one lane, as soon as the stage is empty.
template <class Copy>
__device__ void LoadPages(const AttentionBatch& batch, const CtaPages& pages, int stages,
                          StageBarriers barriers, Copy copy) {
  const int first = pages.first, count = pages.count;
  ListedPage listed, following;
  if (LaneId() < count) following = FindPage(batch, pages, first + LaneId());
  int stage = 0;
  uint32_t parity = 1;  // nobody has to empty a stage that was never filled
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    if (i % kWarp == 0) {
      listed = following;
      const int next = i + kWarp + LaneId();
      if (next < count) following = FindPage(batch, pages, first + next);
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
  int slot, b, chunk;
  int end;  // among the CTA's pages
  int keys_begin,
      keys_end;  // that the sequence's token sees, from the CTA's first page on as if all its pages were the sequence's
};
__device__ inline Piece PieceAt(const CtaPages& pages, int begin) {
  Piece piece = {0, pages.sequence, pages.chunk, pages.count, 0, 0};
  KeySpan keys = pages.span;
  int page = pages.first;  // of the sequence: what the CTA's first one would be
  if (!pages.is_single) {
    const PageSchedule& schedule = pages.schedule;
    const PageSchedule::Place place = schedule.PlaceOf(pages.first + begin);
    piece.b = place.sequence, piece.chunk = place.chunk;
    piece.slot = schedule.SlotOf(place.chunk * schedule.sequences + place.sequence, pages.cta);
    piece.end = min(pages.count, place.end - pages.first);
    keys = pages.keys[piece.b];
    page -= place.first;
  }
  page += keys.first_page();
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
