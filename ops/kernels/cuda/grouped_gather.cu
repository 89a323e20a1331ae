// SPDX-License-Identifier: Apache-2.0
// Reads of the rows of requests: a warp a row that is decoded, or a run of rows that are copied.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_gather.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kWarps = 8;  // of a block

__device__ int64_t ThreadOfGrid() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// The cache's row of a request's token, which must be below the capacity; with null data, and told, where its block is none of the cache.
__device__ RowAddress RowOfToken(const PagedRequests& pages, int64_t request, int64_t token) {
  const int64_t entry = request * pages.columns + token / pages.rows.block_size;
  const int64_t block = pages.block_table[entry];
  if (block >= 0 && block < pages.rows.num_blocks) {
    return pages.rows.At(block, token % pages.rows.block_size, 0);
  }
  if (LaneId() == 0) pages.errors.Tell(pages.table_input, entry, block);
  return {};
}

struct RowRange {
  int64_t begin = 0, end = 0;
};

// --- the last rows ---

// The tokens of the request that are read; none, and told by the thread that `tells`, where the lengths leave no room.
__device__ RowRange LastTokens(const LastRowsGather& p, int64_t request, bool tells) {
  const int64_t length = p.seq_lens[request];
  const int64_t count = p.gather_lens[request];
  if (length < 0 || length > p.pages.capacity) {
    if (tells) p.pages.errors.Tell(p.seq_lens_input, request, length);
    return {};
  }
  if (count < 0 || count > length || (count > 0 && count > p.workspace_rows - p.offset)) {
    if (tells) p.pages.errors.Tell(p.gather_lens_input, request, count);
    return {};
  }
  return {length - count, length};
}

// `blocks` CTAs share the rows of a request.
__global__ void LastRowsGatherKernel(const __grid_constant__ LastRowsGather p, int blocks) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t request = blockIdx.x / static_cast<unsigned>(blocks);
  const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
  const RowRange tokens = LastTokens(p, request, block == 0 && threadIdx.x == 0);
  const GroupedRowFormat& format = p.pages.format;
  auto* to = reinterpret_cast<Bfloat16*>(p.workspace) +
             (request * p.workspace_rows + p.offset) * format.elements();
  const int first = block * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t i = first; i < tokens.end - tokens.begin; i += blocks * kWarps) {
    const RowAddress row = RowOfToken(p.pages, request, tokens.begin + i);
    if (row.data != nullptr) DecodeRowOfGroups(format, row, to + i * format.elements());
  }
}

// --- all rows ---

// The first request from `first` on whose rows range(request) hold the row, or -1. All lanes of a warp call it.
template <class F>
__device__ int64_t OwnerOf(int64_t row, int64_t first, int64_t requests, const F& range) {
  for (; first < requests; first += kWarp) {
    const int64_t request = first + LaneId();
    const RowRange rows = request < requests ? range(request) : RowRange{};
    const unsigned owners = __ballot_sync(kAllLanes, rows.begin <= row && row < rows.end);
    if (owners != 0) return first + __ffs(static_cast<int>(owners)) - 1;
  }
  return -1;
}

// f(request) for all requests, each in one thread of the grid.
template <class F>
__device__ void ForRequests(int64_t requests, const F& f) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t request = ThreadOfGrid(); request < requests; request += threads) f(request);
}

__device__ RowRange RowsOfRequest(const RequestRowsGather& p, int64_t request) {
  const int64_t start = p.starts[request];
  return {start, start + p.seq_lens[request]};
}

__device__ void CheckRequest(const RequestRowsGather& p, int64_t request) {
  const int64_t length = p.seq_lens[request];
  const int64_t start = p.starts[request];
  if (length < 0 || length > p.pages.capacity) {
    p.pages.errors.Tell(p.seq_lens_input, request, length);
  }
  if (start < 0 || start + length > p.workspace_rows) {
    p.pages.errors.Tell(p.starts_input, request, start);
  }
}

__global__ void RequestRowsGatherKernel(const __grid_constant__ RequestRowsGather p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  ForRequests(p.pages.requests, [&](int64_t request) { CheckRequest(p, request); });
  const int64_t row = ThreadOfGrid() / kWarp;
  if (row >= p.workspace_rows) return;
  const GroupedRowFormat& format = p.pages.format;
  auto* to = reinterpret_cast<Bfloat16*>(p.workspace) + row * format.elements();
  const auto rows_of = [&](int64_t request) { return RowsOfRequest(p, request); };
  const int64_t request = OwnerOf(row, 0, p.pages.requests, rows_of);
  RowAddress from;
  if (request >= 0) {
    const int64_t other = OwnerOf(row, request + 1, p.pages.requests, rows_of);
    if (other >= 0 && LaneId() == 0) p.pages.errors.Tell(p.starts_input, other, p.starts[other]);
    const int64_t token = row - p.starts[request];
    if (token < p.pages.capacity) from = RowOfToken(p.pages, request, token);
  }
  if (from.data != nullptr) return DecodeRowOfGroups(format, from, to);
  StoreRow(to, static_cast<int>(format.elements()), [](int) { return Bfloat16::FromBits(0); });
}

// --- codes and scales ---

constexpr int kRowsOfRun = 16;  // that a warp takes

__device__ RowRange RowsOfRequest(const KeyGather& p, int64_t request) {
  return {p.starts[request], p.starts[request + 1]};
}

__device__ void CheckRequest(const KeyGather& p, int64_t request) {
  const RowRange rows = RowsOfRequest(p, request);
  const int64_t length = rows.end - rows.begin;
  if (request == 0 && rows.begin != 0) p.pages.errors.Tell(p.starts_input, 0, rows.begin);
  if (length < 0 || length > p.pages.capacity || rows.end > p.rows) {
    p.pages.errors.Tell(p.starts_input, request + 1, rows.end);
  }
}

// Rows [begin, end) from one block of the cache, or zeros where that has none.
__device__ void StoreKeys(const KeyGather& p, const RowRange& rows, RowAddress from) {
  const int64_t count = rows.end - rows.begin;
  const int64_t code_bytes = p.pages.format.CodeBytes();
  const int64_t scale_bytes = p.pages.format.ScaleBytes();
  uint8_t* codes = p.codes + rows.begin * code_bytes;
  uint8_t* scales = p.scales + rows.begin * scale_bytes;
  if (from.data != nullptr) {
    CopyBytes(from.data, count * code_bytes, codes);
    CopyBytes(from.scale, count * scale_bytes, scales);
    return;
  }
  const auto zero = [](int) { return uint8_t{0}; };
  StoreRow(codes, static_cast<int>(count * code_bytes), zero);
  StoreRow(scales, static_cast<int>(count * scale_bytes), zero);
}

__global__ void KeyGatherKernel(const __grid_constant__ KeyGather p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  ForRequests(p.pages.requests, [&](int64_t request) { CheckRequest(p, request); });
  const int64_t block_size = p.pages.rows.block_size;
  const auto rows_of = [&](int64_t request) { return RowsOfRequest(p, request); };
  const int64_t first = ThreadOfGrid() / kWarp * kRowsOfRun;
  const int64_t last = min(first + kRowsOfRun, p.rows);
  for (int64_t row = first; row < last;) {
    const int64_t request = OwnerOf(row, 0, p.pages.requests, rows_of);
    int64_t end = row + 1;
    RowAddress from;
    if (request >= 0) {
      const RowRange own = rows_of(request);
      const int64_t token = row - own.begin;
      end = min(row + block_size - token % block_size, min(own.end, last));
      if (token < p.pages.capacity) from = RowOfToken(p.pages, request, token);
    }
    StoreKeys(p, {row, end}, from);
    row = end;
  }
}

// Requests are looked at where there are no rows too.
LaunchShape ShapeForWarps(int64_t warps) {
  return {.grid = static_cast<unsigned>(CeilDiv(std::max<int64_t>(warps, 1), kWarps)),
          .block = kWarps * kWarp};
}

}  // namespace

Error LaunchLastRowsGather(const LastRowsGather& gather, Stream stream) {
  if (gather.pages.requests == 0) return 0;
  constexpr int64_t kBlocks = 2048;  // of the grid, where there are rows for them
  const int64_t most = CeilDiv(std::max<int64_t>(gather.workspace_rows - gather.offset, 1), kWarps);
  const int64_t blocks = std::clamp<int64_t>(kBlocks / gather.pages.requests, 1, most);
  const LaunchShape shape = ShapeForWarps(gather.pages.requests * blocks * kWarps);
  return Launch(LastRowsGatherKernel, shape, stream, gather, static_cast<int>(blocks));
}

Error LaunchRequestRowsGather(const RequestRowsGather& gather, Stream stream) {
  if (gather.pages.requests == 0 && gather.workspace_rows == 0) return 0;
  return Launch(RequestRowsGatherKernel, ShapeForWarps(gather.workspace_rows), stream, gather);
}

Error LaunchKeyGather(const KeyGather& gather, Stream stream) {
  if (gather.pages.requests == 0 && gather.rows == 0) return 0;
  const LaunchShape shape = ShapeForWarps(CeilDiv(gather.rows, kRowsOfRun));
  return Launch(KeyGatherKernel, shape, stream, gather);
}

}  // namespace pagefuse::cuda
