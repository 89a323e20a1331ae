// SPDX-License-Identifier: Apache-2.0
// TopKSlots and ReqIndexToSlot: a block of threads a token, four indices a thread at a time where rows are aligned so, what the
// request's row of the block table adds to indices in shared memory where each entry is read often. Indices are on their way
// while the numbers of the token come.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/indices_ahead.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/slots.h"
#include "pagefuse/ops/kernels/cuda/strided.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

constexpr int kLeastThreads = 64, kMostThreads = 256, kBlocksOfProcessor = 5;
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
  if (call.prefills != nullptr) row.prefill = max(call.prefills[token], -1);
  const bool is_valid = call.valid == nullptr || call.valid[token] != 0;
  if (row.request < 0 || row.request >= call.num_requests) {
    call.errors.Tell(call.inputs.requests, token, row.request);
    return row;
  }
  if (row.prefill >= call.num_starts) {
    call.errors.Tell(call.inputs.prefills, token, row.prefill);
    return row;
  }
  if (row.prefill >= 0) row.start = call.starts[row.prefill];
  row.is_given = row.start >= 0 && is_valid;
  return row;
}

__device__ void CheckStarts(const SlotLookup& call) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.num_starts;
       i += threads) {
    if (call.starts[i] < 0) call.errors.Tell(call.inputs.starts, i, call.starts[i]);
  }
}

// What the blocks of a table are. A slot is an index and what its column adds, modulo 2^32: negative where the block is, and where
// the slot does not fit int32.
struct TableBlocks {
  Divisor size;
  uint32_t last = 0;  // that has a slot in int32

  explicit TableBlocks(int32_t block_size)
      : size(static_cast<uint32_t>(block_size)), last(INT32_MAX / size.size) {}

  __device__ uint32_t AddedBy(uint32_t column, int32_t block) const {
    const auto number = static_cast<uint32_t>(block);
    constexpr uint32_t kNegative = 0x80000000u;
    return (number <= last ? number * size.size : kNegative) - column * size.size;
  }
};

// What an index becomes: a slot, kNone, or kWrong where the op's check would refuse it.
constexpr int32_t kNone = -1, kWrong = -2;

// added(column): of the request's row.
template <class F>
__device__ int32_t SlotOf(const SlotLookup& call, const TableBlocks& blocks, const TokenRow& row,
                          const F& added, int32_t v) {
  const auto index = static_cast<uint32_t>(v);
  if (!row.is_given || index >= static_cast<uint32_t>(call.limit)) {
    return row.is_given && call.has_limit && v >= 0 ? kWrong : kNone;
  }
  const uint32_t add =
      row.uses_table() ? added(blocks.size.Quotient(index)) : static_cast<uint32_t>(row.start);
  return max(static_cast<int32_t>(index + add), kWrong);
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

template <int kAtOnce, bool kSharesTable>
__global__ void __launch_bounds__(kMostThreads, kBlocksOfProcessor)
    SlotLookupKernel(const __grid_constant__ SlotLookup call,
                     const __grid_constant__ TableBlocks blocks) {
  extern __shared__ uint32_t added_by_columns[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const auto count = static_cast<uint32_t>(call.count);
  const int32_t* indices = call.indices + token * call.count;
  int32_t* slots = call.slots + token * call.count;
  Indices<kAtOnce> ahead[kAhead];
  uint32_t first = threadIdx.x * kAtOnce;
  LoadAhead(indices, count, first, blockDim.x, ahead);
  const TokenRow row = RowOf(call, token);
  const int32_t* table = call.table + (row.uses_table() ? row.request * call.columns : 0);
  if (kSharesTable && row.uses_table()) {
    const auto columns = static_cast<uint32_t>(call.columns);
#pragma unroll 4
    for (uint32_t c = threadIdx.x; c < columns; c += blockDim.x) {
      added_by_columns[c] = blocks.AddedBy(c, table[c]);
    }
    __syncthreads();
  }
  const auto added = [&](uint32_t column) {
    return kSharesTable ? added_by_columns[column] : blocks.AddedBy(column, table[column]);
  };
  int32_t found = 0;
  uint32_t wrong = count;
  while (first < count) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const uint32_t i = first + k * blockDim.x * kAtOnce;
      if (i >= count) break;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int32_t slot = SlotOf(call, blocks, row, added, ahead[k].at[j]);
        if (slot == kWrong) wrong = i + j;
        found += slot >= 0 ? 1 : 0;
        ahead[k].at[j] = max(slot, kNone);
      }
      *reinterpret_cast<Indices<kAtOnce>*>(slots + i) = ahead[k];
    }
    first += kAhead * blockDim.x * kAtOnce;
    LoadAhead(indices, count, first, blockDim.x, ahead);
  }
  if (wrong < count) TellWrong(call, blocks.size, row, token * call.count + wrong);
  found = SumOfBlock(found);
  if (threadIdx.x == 0) call.counts[token] = found;
  CheckStarts(call);
}

template <int kAtOnce>
Error LaunchLookup(const SlotLookup& call, Stream stream) {
  int threads = kLeastThreads;
  while (threads < kMostThreads && threads * kAtOnce * kAhead < call.count) threads *= 2;
  // Each entry is read once then, and often.
  const bool shares_table = call.columns <= std::min(kMostSharedColumns, call.count);
  const LaunchShape shape = {
      .grid = static_cast<unsigned>(call.tokens),
      .block = static_cast<unsigned>(threads),
      .shared_bytes = shares_table ? static_cast<size_t>(call.columns) * sizeof(uint32_t) : 0};
  const auto kernel =
      shares_table ? SlotLookupKernel<kAtOnce, true> : SlotLookupKernel<kAtOnce, false>;
  return Launch(kernel, shape, stream, call, TableBlocks(call.block_size));
}

}  // namespace

Error LaunchSlotLookup(const SlotLookup& call, Stream stream) {
  if (call.tokens == 0) return 0;
  if (std::max(call.tokens, call.count) > INT32_MAX) return kTooLarge;
  const bool fours = call.count % 4 == 0 && IsAligned(call.indices, sizeof(Indices<4>)) &&
                     IsAligned(call.slots, sizeof(Indices<4>));
  return fours ? LaunchLookup<4>(call, stream) : LaunchLookup<1>(call, stream);
}

}  // namespace pagefuse::cuda
