// SPDX-License-Identifier: Apache-2.0
// CombineTopKWindow: a warp a token, four numbers a lane at a time where rows are aligned so. Indices are on their way while the
// numbers of the token come.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/indices_ahead.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/slots.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

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
