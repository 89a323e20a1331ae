// SPDX-License-Identifier: Apache-2.0
// The windows of CompressCacheInsert: which tokens end one, and the checks of what they read and write. Device code: for .cu files.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/compress.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {

// Tokens that share a block, at most.
inline constexpr int kMostTokens = 128;

struct CompressCall : CompressInsert {
  Divisor state_block;  // tokens
  int block_tokens = 1;
  int blocks = 1;   // of a cluster: each has columns of the windows of its tokens
  int columns = 0;  // of a block
};

__device__ inline int ThreadOfBlock() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}
__device__ inline unsigned ThreadsOfBlock() { return blockDim.x * blockDim.y; }

// This block of its cluster.
__device__ inline int BlockOfCluster(const CompressCall& p) {
  return static_cast<int>(blockIdx.x) & (p.blocks - 1);
}

// That a token has an index out of range. False.
__device__ inline bool Told(const CompressCall& p, int input, int64_t element, int64_t value) {
  if (ThreadOfBlock() == 0) p.errors.Tell(input, element, value);
  return false;
}

// In 32 bits where they do.
__device__ inline int64_t Quotient(int64_t a, int64_t b) {
  if ((a | b) >> 32 != 0) return a / b;
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// What a token has: all of it on its way before one is used.
struct Token {
  int64_t state_slot, position, slot;
  int32_t request;

  Token() = default;
  __device__ Token(const CompressCall& p, int64_t token)
      : state_slot(FetchIndex(p.slots.data, p.slots.is_int64, token)),
        position(FetchIndex(p.positions.data, p.positions.is_int64, token)),
        slot(FetchIndex(p.kv_slots.slots, p.kv_slots.is_int64, token)),
        request(p.token_to_req[token]) {}

  // Whether it ends a window that is written.
  __device__ bool EndsWindow(const CompressCall& p, int64_t token) const {
    if (state_slot < 0) return false;
    if (position < 0) {
      p.errors.Tell(p.inputs.positions, token, position);
      return false;
    }
    return position - Quotient(position, p.ratio) * p.ratio == p.ratio - 1 && slot >= 0;
  }
};

// The tokens of a block, in shared memory, and which of them end windows.
struct TokenList {
  Token at[kMostTokens];
  unsigned ends[kMostTokens / kWarp];  // a bit each

  // Those from `first` on. All threads come here.
  __device__ void Load(const CompressCall& p, int64_t first) {
    const int warps = (p.block_tokens + kWarp - 1) / kWarp;
#pragma unroll 1
    for (int t = ThreadOfBlock(); t < warps * kWarp; t += static_cast<int>(ThreadsOfBlock())) {
      const bool is_one = t < p.block_tokens && first + t < p.tokens;
      if (is_one) at[t] = Token(p, first + t);
      const unsigned mask = __ballot_sync(kAllLanes, is_one && at[t].EndsWindow(p, first + t));
      if (LaneId() == 0) ends[t / kWarp] = mask;
    }
    __syncthreads();
  }
  // f(t) for those that end windows.
  template <class F>
  __device__ void ForEachEnd(const CompressCall& p, const F& f) const {
#pragma unroll 1
    for (int t = 0; t < p.block_tokens; t += kWarp) {
      for (unsigned left = ends[t / kWarp]; left != 0; left &= left - 1) {
        f(t + __ffs(static_cast<int>(left)) - 1);
      }
    }
  }
};

// A window that is written: positions [begin, position].
struct Window {
  int64_t token, table_row, slot;
  const int32_t* blocks;  // of its request's state
  uint32_t begin, position;
};

// Whether its blocks are those of the state. All threads come here, with the same window.
__device__ inline bool HasBlocks(const CompressCall& p, const Window& window) {
  const uint32_t first = p.state_block.Quotient(window.begin);
  const uint32_t last = p.state_block.Quotient(window.position);
  bool is_wrong = false;
  for (uint32_t i = first + ThreadOfBlock(); i <= last; i += ThreadsOfBlock()) {
    const int32_t block = window.blocks[i];
    if (block >= 0 && block < p.state.num_blocks) continue;
    is_wrong = true;
    p.errors.Tell(p.inputs.block_table, window.blocks + i - p.block_table, block);
  }
  return !__syncthreads_or(is_wrong);
}

// Whether a later token writes the same slot. All threads come here.
__device__ inline bool IsOverwritten(const CompressCall& p, const Window& window) {
  bool later = false;
  for (int64_t t = window.token + 1 + ThreadOfBlock(); t < p.tokens; t += ThreadsOfBlock()) {
    later = later || (p.kv_slots[t] == window.slot && Token(p, t).EndsWindow(p, t));
  }
  return __syncthreads_or(later);
}

// The token's window. False where it is not written: what it reads or its slot is out of range, or a later token has the slot. All threads
// come here with the same token, and have come before any goes on with a window.
__device__ inline bool FindWindow(const CompressCall& p, int64_t token, const Token& own,
                                  Window& window) {
  const int64_t position = own.position, request = own.request;
  window.slot = own.slot;
  if (request < 0 || request >= p.requests) {
    return Told(p, p.inputs.token_to_req, token, request);
  }
  window.token = token;
  window.table_row = p.table_row_of_token ? token : Quotient(position, p.ratio) * p.ratio;
  if (p.state.block_size == 0 || Quotient(position, p.state.block_size) >= p.table_columns ||
      window.table_row >= p.rotation.table_rows) {
    return Told(p, p.inputs.positions, token, position);
  }
  if (window.slot >= NumSlots(p.rows)) return Told(p, p.inputs.kv_slots, token, window.slot);
  window.blocks = p.block_table + request * p.table_columns;
  window.position = static_cast<uint32_t>(position);
  window.begin = static_cast<uint32_t>(max(position - p.WindowRows() + 1, int64_t{0}));
  return HasBlocks(p, window) && (p.kv_slots.unique || !IsOverwritten(p, window));
}

}  // namespace pagefuse::cuda
