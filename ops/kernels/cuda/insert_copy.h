// SPDX-License-Identifier: Apache-2.0
// Inserts of rows that are stored unchanged, in pieces of 16 bytes. Device code: for .cu files.
//
// A lane has more than one load in flight, and none waits for the slot.
#pragma once

#include "pagefuse/ops/kernels/cuda/insert_rows.h"

namespace pagefuse::cuda {

inline constexpr int kCopyWarps = 8;   // of a block
inline constexpr int kCopyPieces = 2;  // of a lane

struct CopyCall {
  struct Side {
    const uint4* source;
    CacheRows rows;
  };
  Side sides[2];
  SlotMapping slots;
  uint32_t num_slots;
  uint32_t row_pieces, token_pieces;  // of one side
  uint32_t runs;                      // warps that share a side of a token
};

// A warp moves a run of neighbouring pieces of one side of a token.
static __global__ void __launch_bounds__(kCopyWarps* kWarp)
    CopyInsertKernel(const __grid_constant__ CopyCall call) {
  const uint32_t job = blockIdx.x * kCopyWarps + threadIdx.x / kWarp;
  const uint32_t run = job % call.runs, rest = job / call.runs;
  const CopyCall::Side& side = call.sides[rest % 2];
  const int64_t token = rest / 2;
  const uint32_t first = run * kWarp * kCopyPieces + threadIdx.x % kWarp;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  if (token >= call.slots.tokens) return;
  const int64_t slot = call.slots[token];
  const uint4* source = side.source + token * call.token_pieces;
  uint4 x[kCopyPieces];
#pragma unroll
  for (int i = 0; i < kCopyPieces; ++i) {
    if (first + i * kWarp < call.token_pieces) x[i] = __ldcs(source + first + i * kWarp);
  }
  if (slot < 0 || slot >= call.num_slots) return;
  const uint32_t block_size = static_cast<uint32_t>(side.rows.block_size);
  const uint32_t block = static_cast<uint32_t>(slot) / block_size;
  const uint32_t row = static_cast<uint32_t>(slot) % block_size;
#pragma unroll
  for (int i = 0; i < kCopyPieces; ++i) {
    const uint32_t piece = first + i * kWarp;
    if (piece >= call.token_pieces) break;
    uint8_t* to = side.rows.At(block, row, piece / call.row_pieces).data;
    __stcs(reinterpret_cast<uint4*>(to) + piece % call.row_pieces, x[i]);
  }
}

// Whether all rows of the side, at both ends, are whole pieces.
inline bool ComesInPieces(const InsertSide& side, int64_t element_bytes) {
  constexpr int64_t kPiece = sizeof(uint4);
  const CacheRows::Strides& strides = side.rows.data_strides;
  const int64_t steps = (side.head_size * element_bytes) | strides.block | strides.row |
                        strides.head | reinterpret_cast<intptr_t>(side.source) |
                        reinterpret_cast<intptr_t>(side.rows.data);
  return steps % kPiece == 0;
}

inline bool SuitsCopyInsert(const CacheInsert& insert, int64_t element_bytes) {
  const InsertSide &key = insert.key, &value = insert.value;
  const auto is_plain = [](const InsertSide& side) {
    return side.mode == KvQuantMode::kNone && side.CopiesBytes();
  };
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t token_pieces = key.heads * (key.head_size * element_bytes / sizeof(uint4));
  return insert.slots.unique && is_plain(key) && is_plain(value) && key.heads == value.heads &&
         key.head_size == value.head_size && key.rows.block_size == value.rows.block_size &&
         key.source_type == value.source_type && ComesInPieces(key, element_bytes) &&
         ComesInPieces(value, element_bytes) && token_pieces > 0 && NumSlots(key.rows) < kMost &&
         insert.slots.tokens * (token_pieces + kWarp * kCopyPieces) < kMost;
}

inline Error LaunchCopyInsert(const CacheInsert& insert, int64_t element_bytes, Stream stream) {
  CopyCall call = {};
  call.sides[0] = {reinterpret_cast<const uint4*>(insert.key.source), insert.key.rows};
  call.sides[1] = {reinterpret_cast<const uint4*>(insert.value.source), insert.value.rows};
  call.slots = insert.slots;
  call.num_slots = static_cast<uint32_t>(NumSlots(insert.key.rows));
  call.row_pieces = static_cast<uint32_t>(insert.key.head_size * element_bytes / sizeof(uint4));
  call.token_pieces = static_cast<uint32_t>(insert.key.heads) * call.row_pieces;
  call.runs = static_cast<uint32_t>(CeilDiv(call.token_pieces, kWarp * kCopyPieces));
  const int64_t jobs = insert.slots.tokens * 2 * call.runs;
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(jobs, kCopyWarps)),
                          .block = kCopyWarps * kWarp};
  return Launch(CopyInsertKernel, shape, stream, call);
}

}  // namespace pagefuse::cuda
