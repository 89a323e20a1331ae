// SPDX-License-Identifier: Apache-2.0
// TopKSlots and ReqIndexToSlot: a block of threads a token, four indices a thread at a time, what the request's row of the
// block table adds to indices in shared memory where that pays. CombineTopKWindow: a warp a token. Indices are on their way while the numbers
// of the token come.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/slots.h"
#include "pagefuse/ops/kernels/cuda/strided.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

// Vectors of indices that a thread loads at once.
constexpr int kAhead = 4;

template <int kAtOnce>
using Indices = Vector<int32_t, kAtOnce>;

// Indices [first, ...) of a row of `count`: this one of `threads` gets every `threads`th vector. What is behind the row stays.
template <int kAtOnce>
__device__ void LoadAhead(const int32_t* row, uint32_t count, uint32_t first, uint32_t threads,
                          Indices<kAtOnce> (&ahead)[kAhead]) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const uint32_t i = first + k * threads * kAtOnce;
    if (i < count) ahead[k] = *reinterpret_cast<const Indices<kAtOnce>*>(row + i);
  }
}

// --- TopKSlots, ReqIndexToSlot ---

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

// --- CombineTopKWindow ---

constexpr int kWindowThreads = 128;

__device__ int64_t StartOf(const TopKWindow& call, int64_t request) {
  return int64_t{call.starts[request]} - call.starts[0];
}

// The numbers of a request, with its tokens [start, end).
struct WindowRequest {
  int64_t number = -1;
  int64_t start = 0, end = 0;
  int32_t length = 0, gathered = 0;
};

__device__ WindowRequest RequestOf(const TopKWindow& call, int64_t number) {
  return {.number = number,
          .start = StartOf(call, number),
          .end = StartOf(call, number + 1),
          .length = call.lengths[number],
          .gathered = call.gathered[number]};
}

// The request of a token; number -1 where it has none. All lanes of a warp call it, each looks at a request at a time.
__device__ WindowRequest RequestOfToken(const TopKWindow& call, int64_t token) {
  for (int64_t first = 0; first < call.requests; first += kWarp) {
    WindowRequest own;
    if (first + LaneId() < call.requests) own = RequestOf(call, first + LaneId());
    const unsigned owners = __ballot_sync(kAllLanes, own.start <= token && token < own.end);
    if (owners == 0) continue;
    const int owner = __ffs(static_cast<int>(owners)) - 1;
    return {.number = first + owner,
            .start = __shfl_sync(kAllLanes, own.start, owner),
            .end = __shfl_sync(kAllLanes, own.end, owner),
            .length = __shfl_sync(kAllLanes, own.length, owner),
            .gathered = __shfl_sync(kAllLanes, own.gathered, owner)};
  }
  return {};
}

__device__ bool IsSmall(const TopKWindow& call, int64_t number, int input) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (number >= 0 && number <= kMost) return true;
  call.errors.Tell(input, 0, number);
  return false;
}

__device__ uint32_t Compressed(const TopKWindow& call, int64_t tokens) {
  return min(static_cast<uint32_t>(tokens) / static_cast<uint32_t>(call.ratio),
             static_cast<uint32_t>(call.most));
}

// The rows that the op's check asks for; else what is wrong is told.
__device__ bool IsSound(const TopKWindow& call, const WindowRequest& request) {
  const int64_t query = request.end - request.start, length = request.length;
  if (query < 0) {
    const int64_t end = request.number + 1;
    call.errors.Tell(call.inputs.starts, end, call.starts[end]);
    return false;
  }
  if (length < query) {
    call.errors.Tell(call.inputs.lengths, request.number, length);
    return false;
  }
  if (query == 0) return true;
  const int64_t window = min(length - query + 1, int64_t{call.window});
  const int64_t needed = window == 0 ? 0 : query + window - 1;
  if (request.gathered < needed || request.gathered > length) {
    call.errors.Tell(call.inputs.gathered, request.number, request.gathered);
    return false;
  }
  if (Compressed(call, length) <= call.columns) return true;
  call.errors.Tell(call.inputs.lengths, request.number, length);
  return false;
}

// By one block.
__device__ void CheckRequests(const TopKWindow& call) {
  for (int64_t r = threadIdx.x; r < call.requests; r += kWindowThreads) {
    IsSound(call, RequestOf(call, r));
  }
  if (threadIdx.x == 0 && StartOf(call, call.requests) != call.tokens) {
    call.errors.Tell(call.inputs.starts, call.requests, call.starts[call.requests]);
  }
}

// The row of a token: `compressed` numbers of its own and first_row, `window` numbers from first_window_row on, then -1.
struct WindowRow {
  uint32_t compressed = 0, window = 0;
  int64_t first_row = 0, first_window_row = 0;
};

// An empty one where something is out of range.
__device__ WindowRow RowOf(const TopKWindow& call, int64_t token) {
  const int64_t workspace_rows = *call.workspace_rows, window_offset = *call.window_offset;
  const WindowRequest request = RequestOfToken(call, token);
  const bool are_small = IsSmall(call, workspace_rows, call.inputs.workspace_rows) &&
                         IsSmall(call, window_offset, call.inputs.window_offset);
  if (!are_small || request.number < 0 || !IsSound(call, request)) return {};
  const int64_t seen = request.length - (request.end - token) + 1;
  WindowRow row;
  row.window = static_cast<uint32_t>(min(seen, int64_t{call.window}));
  row.first_row = workspace_rows * request.number;
  row.first_window_row =
      row.first_row + window_offset + seen - row.window - (request.length - request.gathered);
  if (row.first_window_row + row.window - 1 > INT32_MAX) {
    call.errors.Tell(call.inputs.workspace_rows, 0, workspace_rows);
    return {.first_row = row.first_row};
  }
  row.compressed = Compressed(call, seen);
  return row;
}

// Number i of a row; `own` is that of the token. False, and -1, where it does not fit int32.
__device__ bool FindNumber(const WindowRow& row, uint32_t i, int32_t own, int32_t& number) {
  number = -1;
  if (i >= row.compressed) {
    const uint32_t of_window = i - row.compressed;
    if (of_window < row.window) number = static_cast<int32_t>(row.first_window_row + of_window);
    return true;
  }
  const int64_t found = own + row.first_row;
  if (found > INT32_MAX) return false;
  number = static_cast<int32_t>(found);
  return true;
}

// The last block checks the requests.
template <int kAtOnce>
__global__ void __launch_bounds__(kWindowThreads)
    TopKWindowKernel(const __grid_constant__ TopKWindow call) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  if (blockIdx.x == gridDim.x - 1) return CheckRequests(call);
  constexpr int kWarps = kWindowThreads / kWarp;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= call.tokens) return;
  const auto columns = static_cast<uint32_t>(call.columns);
  const auto width = static_cast<uint32_t>(call.width);
  const int32_t* topk = call.topk + token * call.columns;
  int32_t* combined = call.combined + token * call.width;
  Indices<kAtOnce> ahead[kAhead] = {};
  uint32_t first = threadIdx.x % kWarp * kAtOnce;
  LoadAhead(topk, columns, first, kWarp, ahead);
  const WindowRow row = RowOf(call, token);
  uint32_t wrong = columns;
  while (first < width) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const uint32_t i = first + k * kWarp * kAtOnce;
      if (i >= width) break;
      Indices<kAtOnce> numbers;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (!FindNumber(row, i + j, ahead[k].at[j], numbers.at[j])) wrong = i + j;
      }
      *reinterpret_cast<Indices<kAtOnce>*>(combined + i) = numbers;
    }
    first += kAhead * kWarp * kAtOnce;
    LoadAhead(topk, columns, first, kWarp, ahead);
  }
  if (wrong < columns)
    call.errors.Tell(call.inputs.topk, token * call.columns + wrong, topk[wrong]);
  if (LaneId() == 0) call.counts[token] = static_cast<int32_t>(row.compressed + row.window);
}

}  // namespace

Error LaunchSlotLookup(const SlotLookup& call, Stream stream) {
  if (call.tokens == 0) return 0;
  if (std::max(call.tokens, call.count) > INT32_MAX) return kTooLarge;
  const bool fours = call.count % 4 == 0 && IsAligned(call.indices, sizeof(Indices<4>)) &&
                     IsAligned(call.slots, sizeof(Indices<4>));
  return fours ? LaunchLookup<4>(call, stream) : LaunchLookup<1>(call, stream);
}

Error LaunchTopKWindow(const TopKWindow& call, Stream stream) {
  if (call.tokens == 0) return 0;
  const int64_t blocks = CeilDiv(call.tokens, kWindowThreads / kWarp) + 1;
  if (std::max({blocks, call.columns, call.width}) > INT32_MAX) return kTooLarge;
  const LaunchShape shape = {.grid = static_cast<unsigned>(blocks), .block = kWindowThreads};
  const bool fours = call.columns % 4 == 0 && IsAligned(call.topk, sizeof(Indices<4>)) &&
                     IsAligned(call.combined, sizeof(Indices<4>));
  return fours ? Launch(TopKWindowKernel<4>, shape, stream, call)
               : Launch(TopKWindowKernel<1>, shape, stream, call);
}

}  // namespace pagefuse::cuda
