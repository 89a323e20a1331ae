// SPDX-License-Identifier: Apache-2.0
// TopKSlots and ReqIndexToSlot: a block of threads a token, four indices a thread at a time, the request's row of the
// block table in shared memory where that pays. CombineTopKWindow: a warp a token.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_rows.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/slots.h"
#include "pagefuse/ops/kernels/cuda/strided.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/indexer/combine_topk_window.h"

namespace pagefuse::cuda {
namespace {

// --- TopKSlots, ReqIndexToSlot ---

constexpr int kMostThreads = 256;
constexpr int64_t kMostSharedColumns = 4096;

// Where the indices of a token lead.
struct TokenRow {
  bool is_given = false;  // else all become -1
  int64_t request = 0;
  int64_t prefill = -1, start = 0;

  __device__ bool uses_table() const { return is_given && prefill < 0; }
};

__device__ TokenRow RowOf(const SlotLookup& call, int64_t token) {
  TokenRow row = {.request = call.requests[token]};
  if (row.request < 0 || row.request >= call.num_requests) {
    call.errors.Tell(call.inputs.requests, token, row.request);
    return row;
  }
  if (call.prefills != nullptr) row.prefill = max(call.prefills[token], -1);
  if (row.prefill >= call.num_starts) {
    call.errors.Tell(call.inputs.prefills, token, row.prefill);
    return row;
  }
  if (row.prefill >= 0) row.start = call.starts[row.prefill];
  row.is_given = row.start >= 0 && (call.valid == nullptr || call.valid[token] != 0);
  return row;
}

__device__ void CheckStarts(const SlotLookup& call) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.num_starts;
       i += threads) {
    if (call.starts[i] < 0) call.errors.Tell(call.inputs.starts, i, call.starts[i]);
  }
}

// What an index becomes: a slot, kNone, or kWrong where the op's check would refuse it.
constexpr int32_t kNone = -1, kWrong = -2;

// `table`: the request's row.
__device__ int32_t SlotOf(const SlotLookup& call, const Divisor& block_size, const TokenRow& row,
                          const int32_t* table, int32_t v) {
  if (v < 0 || !row.is_given) return kNone;
  if (v >= call.limit) return call.has_limit ? kWrong : kNone;
  int64_t slot = row.start + v;
  if (row.prefill < 0) {
    const uint32_t column = block_size.Quotient(static_cast<uint32_t>(v));
    const int64_t block = table[column];
    if (block < 0) return kWrong;
    slot = (block - column) * block_size.size + v;
  }
  return slot <= INT32_MAX ? static_cast<int32_t>(slot) : kWrong;
}

// Of the element of the indices that is kWrong.
__device__ void TellWrong(const SlotLookup& call, const Divisor& block_size, const TokenRow& row,
                          int64_t element) {
  const int32_t v = call.indices[element];
  if (v >= call.limit) {
    call.errors.Tell(call.inputs.indices, element, v);
  } else if (row.prefill >= 0) {
    call.errors.Tell(call.inputs.starts, row.prefill, row.start);
  } else {
    const int64_t at = row.request * call.columns + block_size.Quotient(static_cast<uint32_t>(v));
    call.errors.Tell(call.inputs.table, at, call.table[at]);
  }
}

// The sum over the block's threads, to thread 0.
__device__ int32_t SumOfBlock(int32_t value) {
  __shared__ int32_t sums[kMostThreads / kWarp];
  value = SumOfLanes(value);
  if (LaneId() == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (unsigned w = 1; threadIdx.x == 0 && w < blockDim.x / kWarp; ++w) value += sums[w];
  return value;
}

template <int kAtOnce>
__global__ void __launch_bounds__(kMostThreads)
    SlotLookupKernel(const __grid_constant__ SlotLookup call,
                     const __grid_constant__ Divisor block_size, bool shares_table) {
  extern __shared__ int32_t table_row[];
  using Indices = Vector<int32_t, kAtOnce>;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  CheckStarts(call);
  const int64_t token = blockIdx.x;
  const TokenRow row = RowOf(call, token);
  const int32_t* table = call.table + (row.uses_table() ? row.request * call.columns : 0);
  if (shares_table && row.uses_table()) {
    for (int64_t c = threadIdx.x; c < call.columns; c += blockDim.x) table_row[c] = table[c];
    __syncthreads();
    table = table_row;
  }
  const int64_t first = token * call.count;
  int32_t found = 0;
  int64_t wrong = -1;
  for (int64_t i = kAtOnce * threadIdx.x; i < call.count; i += kAtOnce * blockDim.x) {
    Indices at_once = *reinterpret_cast<const Indices*>(call.indices + first + i);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int32_t slot = SlotOf(call, block_size, row, table, at_once.at[j]);
      if (slot == kWrong) wrong = first + i + j;
      found += slot >= 0 ? 1 : 0;
      at_once.at[j] = max(slot, kNone);
    }
    *reinterpret_cast<Indices*>(call.slots + first + i) = at_once;
  }
  if (wrong >= 0) TellWrong(call, block_size, row, wrong);
  found = SumOfBlock(found);
  if (threadIdx.x == 0) call.counts[token] = found;
}

template <int kAtOnce>
Error LaunchLookup(const SlotLookup& call, Stream stream) {
  int threads = kWarp;
  while (threads < kMostThreads && threads * kAtOnce < call.count) threads *= 2;
  // Each entry is read once then, and often.
  const bool shares_table = call.columns <= std::min(kMostSharedColumns, call.count);
  const LaunchShape shape = {
      .grid = static_cast<unsigned>(call.tokens),
      .block = static_cast<unsigned>(threads),
      .shared_bytes = shares_table ? static_cast<size_t>(call.columns) * sizeof(int32_t) : 0};
  return Launch(SlotLookupKernel<kAtOnce>, shape, stream, call,
                Divisor(static_cast<uint32_t>(call.block_size)), shares_table);
}

// --- CombineTopKWindow ---

using pagefuse_ops::CombinedRow;

constexpr int kWindowThreads = 128;

__device__ int64_t StartOf(const TopKWindow& call, int64_t request) {
  return int64_t{call.starts[request]} - call.starts[0];
}

__device__ bool IsSmall(const TopKWindow& call, const int64_t* number, int input) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (*number >= 0 && *number <= kMost) return true;
  call.errors.Tell(input, 0, *number);
  return false;
}

// The rows that the op's check asks for; else what is wrong is told.
__device__ bool IsSound(const TopKWindow& call, int64_t request) {
  const int64_t query = StartOf(call, request + 1) - StartOf(call, request);
  const int64_t length = call.lengths[request], gathered = call.gathered[request];
  if (query < 0) {
    call.errors.Tell(call.inputs.starts, request + 1, call.starts[request + 1]);
    return false;
  }
  if (length < query) {
    call.errors.Tell(call.inputs.lengths, request, length);
    return false;
  }
  if (query == 0) return true;
  const int64_t window = min(length - query + 1, int64_t{call.window});
  const int64_t needed = window == 0 ? 0 : query + window - 1;
  if (gathered < needed || gathered > length) {
    call.errors.Tell(call.inputs.gathered, request, gathered);
    return false;
  }
  const int64_t compressed = min(length / call.ratio, int64_t{call.most});
  if (compressed <= call.columns) return true;
  call.errors.Tell(call.inputs.lengths, request, length);
  return false;
}

__device__ void CheckRequests(const TopKWindow& call) {
  const int64_t thread = int64_t{blockIdx.x} * kWindowThreads + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * kWindowThreads;
  for (int64_t r = thread; r < call.requests; r += threads) IsSound(call, r);
  if (thread == 0 && StartOf(call, call.requests) != call.tokens) {
    call.errors.Tell(call.inputs.starts, call.requests, call.starts[call.requests]);
  }
}

// The row of a token; an empty one where something is out of range.
__device__ CombinedRow RowOf(const TopKWindow& call, int64_t token) {
  CombinedRow row = {.width = call.width};
  const bool are_small = IsSmall(call, call.workspace_rows, call.inputs.workspace_rows) &&
                         IsSmall(call, call.window_offset, call.inputs.window_offset);
  if (!are_small || call.requests == 0) return row;
  const int64_t request = SequenceOfRow(call.starts, call.requests, call.starts[0] + token);
  const int64_t start = StartOf(call, request), end = StartOf(call, request + 1);
  if (token < start || token >= end || !IsSound(call, request)) return row;
  const int64_t length = call.lengths[request];
  const int64_t seen = length - (end - token) + 1;
  const uint32_t complete = static_cast<uint32_t>(seen) / static_cast<uint32_t>(call.ratio);
  row.window = min(seen, int64_t{call.window});
  row.topk = call.topk + token * call.columns;
  row.first_row = *call.workspace_rows * request;
  row.first_window_row =
      row.first_row + *call.window_offset + seen - row.window - (length - call.gathered[request]);
  if (row.first_window_row + row.window - 1 > INT32_MAX) {
    call.errors.Tell(call.inputs.workspace_rows, 0, *call.workspace_rows);
    row.window = 0;
    return row;
  }
  row.compressed = min(int64_t{complete}, int64_t{call.most});
  return row;
}

__device__ int32_t NumberOf(const CombinedRow& row, int64_t i) {
  if (i >= row.compressed + row.window) return -1;
  if (i >= row.compressed) {
    return static_cast<int32_t>(row.first_window_row + i - row.compressed);
  }
  const int64_t number = row.topk[i] + row.first_row;
  return number <= INT32_MAX ? static_cast<int32_t>(number) : -1;
}

// Indices whose row does not fit int32.
__device__ void CheckCompressed(const TopKWindow& call, const CombinedRow& row, int64_t token) {
  for (int64_t i = LaneId(); i < row.compressed; i += kWarp) {
    if (row.topk[i] + row.first_row <= INT32_MAX) continue;
    call.errors.Tell(call.inputs.topk, token * call.columns + i, row.topk[i]);
  }
}

template <int kAtOnce>
__global__ void __launch_bounds__(kWindowThreads)
    TopKWindowKernel(const __grid_constant__ TopKWindow call) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  CheckRequests(call);
  const int64_t warps = kWindowThreads / kWarp;
  const int64_t token = blockIdx.x * warps + threadIdx.x / kWarp;
  if (token >= call.tokens) return;
  const CombinedRow row = RowOf(call, token);
  int32_t* combined = call.combined + token * call.width;
  for (int64_t i = kAtOnce * LaneId(); i < call.width; i += kAtOnce * kWarp) {
    Vector<int32_t, kAtOnce> numbers;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) numbers.at[j] = NumberOf(row, i + j);
    *reinterpret_cast<Vector<int32_t, kAtOnce>*>(combined + i) = numbers;
  }
  CheckCompressed(call, row, token);
  if (LaneId() == 0) call.counts[token] = static_cast<int32_t>(row.compressed + row.window);
}

}  // namespace

Error LaunchSlotLookup(const SlotLookup& call, Stream stream) {
  if (call.tokens == 0) return 0;
  if (call.tokens > INT32_MAX) return kTooLarge;
  const bool fours = call.count % 4 == 0 && IsAligned(call.indices, sizeof(Vector<int32_t, 4>)) &&
                     IsAligned(call.slots, sizeof(Vector<int32_t, 4>));
  return fours ? LaunchLookup<4>(call, stream) : LaunchLookup<1>(call, stream);
}

Error LaunchTopKWindow(const TopKWindow& call, Stream stream) {
  if (call.tokens == 0) return 0;
  const int64_t blocks = CeilDiv(call.tokens, kWindowThreads / kWarp);
  if (blocks > INT32_MAX) return kTooLarge;
  const LaunchShape shape = {.grid = static_cast<unsigned>(blocks), .block = kWindowThreads};
  const bool fours = IsAligned(call.combined, sizeof(Vector<int32_t, 4>));
  return fours ? Launch(TopKWindowKernel<4>, shape, stream, call)
               : Launch(TopKWindowKernel<1>, shape, stream, call);
}

}  // namespace pagefuse::cuda
