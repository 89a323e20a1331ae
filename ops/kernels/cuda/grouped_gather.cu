// SPDX-License-Identifier: Apache-2.0
// Reads of the rows of requests: a warp a few rows that are decoded, or a run of rows that are copied.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_gather.h"
#include "pagefuse/ops/kernels/cuda/grouped_pieces.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr unsigned kBlockThreads = kWarps * kWarp;
constexpr int kBlocksOfProcessor = 8;  // whose loads are on their way together

using Fp8Ue8m0Rows = KnownRows<448, 64, GroupScale::kUe8m0, GroupedLayout::kSplit>;
using Fp8DsMlaRows = KnownRows<512, 128, GroupScale::kFloat, GroupedLayout::kInline>;

__device__ int64_t WarpOfGrid() {
  return int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarp;
}

// Of tokens, which are less than kMaxWalked.
Divisor BlockSizeOf(const PagedRequests& pages) {
  return Divisor(static_cast<uint32_t>(std::min(pages.rows.block_size, kMaxWalked)));
}

// The cache's row of a request's token, which must be below the capacity; with null data, and told, where its block is none of the cache.
__device__ RowAddress RowOfToken(const PagedRequests& pages, const Divisor& block_size,
                                 int64_t request, int64_t token) {
  const uint32_t column = block_size.Quotient(static_cast<uint32_t>(token));
  const int64_t entry = request * pages.columns + column;
  const int64_t block = pages.block_table[entry];
  if (block >= 0 && block < pages.rows.num_blocks) {
    return pages.rows.At(block, token - int64_t{column} * block_size.size, 0);
  }
  pages.errors.Tell(pages.table_input, entry, block);
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
template <class Rows>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOfProcessor)
    LastRowsGatherKernel(const __grid_constant__ LastRowsGather p,
                         const __grid_constant__ Divisor block_size, int blocks) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t request = blockIdx.x / static_cast<unsigned>(blocks);
  const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
  const RowRange tokens = LastTokens(p, request, block == 0 && threadIdx.x == 0);
  const int64_t count = tokens.end - tokens.begin;
  const GroupedRowFormat& format = p.pages.format;
  auto* to = reinterpret_cast<Bfloat16*>(p.workspace) +
             (request * p.workspace_rows + p.offset) * format.elements();
  const int warp = block * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t first = int64_t{warp} * kRowsAtOnce; first < count;
       first += int64_t{blocks} * kWarps * kRowsAtOnce) {
    const int64_t own = first + LaneId() % kRowsAtOnce;
    RowAddress row;
    if (own < count) row = RowOfToken(p.pages, block_size, request, tokens.begin + own);
    const unsigned found = __ballot_sync(kAllLanes, row.data != nullptr);
    Rows::Decode(format, row, found, to + first * format.elements());
  }
}

// --- all rows ---

// One block more than the rows need, which checks the requests: f(request) for all, each in one thread.
template <class F>
__device__ bool IsCheckingBlock(int64_t requests, const F& f) {
  if (blockIdx.x != gridDim.x - 1) return false;
  for (int64_t request = threadIdx.x; request < requests; request += kBlockThreads) f(request);
  return true;
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

// The first request whose rows hold the one of this lane, which kWarp / kRowsAtOnce lanes have, or -1; others that hold it are told.
__device__ int OwnerOfLanes(const RequestRowsGather& p, int64_t row) {
  constexpr int kNone = INT32_MAX;
  const auto first_of = [&](int a, int b) {
    const int later = max(a, b);
    if (a != b && later != kNone) p.pages.errors.Tell(p.starts_input, later, p.starts[later]);
    return min(a, b);
  };
  int owner = kNone;
  for (int request = LaneId() / kRowsAtOnce; request < p.pages.requests;
       request += kWarp / kRowsAtOnce) {
    const int64_t start = p.starts[request], end = start + p.seq_lens[request];
    if (start <= row && row < end) owner = first_of(owner, request);
  }
  for (int distance = kRowsAtOnce; distance < kWarp; distance *= 2) {
    owner = first_of(owner, __shfl_xor_sync(kAllLanes, owner, distance));
  }
  return owner == kNone ? -1 : owner;
}

template <class Rows>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOfProcessor)
    RequestRowsGatherKernel(const __grid_constant__ RequestRowsGather p,
                            const __grid_constant__ Divisor block_size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const auto check = [&](int64_t request) { CheckRequest(p, request); };
  if (IsCheckingBlock(p.pages.requests, check)) return;
  const int64_t first = WarpOfGrid() * kRowsAtOnce;
  const int64_t row = first + LaneId() % kRowsAtOnce;
  const int request = OwnerOfLanes(p, row);
  RowAddress from;
  if (request >= 0 && row < p.workspace_rows) {
    const int64_t token = row - p.starts[request];
    if (token < p.pages.capacity) from = RowOfToken(p.pages, block_size, request, token);
  }
  const unsigned stored = __ballot_sync(kAllLanes, row < p.workspace_rows);
  const GroupedRowFormat& format = p.pages.format;
  auto* to = reinterpret_cast<Bfloat16*>(p.workspace) + first * format.elements();
  Rows::Decode(format, from, stored, to);
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

// The first request that has the row, or -1. All lanes of a warp call it.
__device__ int64_t OwnerOf(const KeyGather& p, int64_t row) {
  for (int64_t first = 0; first < p.pages.requests; first += kWarp) {
    const int64_t request = first + LaneId();
    const RowRange rows = request < p.pages.requests ? RowsOfRequest(p, request) : RowRange{};
    const unsigned owners = __ballot_sync(kAllLanes, rows.begin <= row && row < rows.end);
    if (owners != 0) return first + __ffs(static_cast<int>(owners)) - 1;
  }
  return -1;
}

// Rows [begin, end) from one block of the cache, or zeros where that has none.
__device__ void StoreKeys(const KeyGather& p, const RowRange& rows, const RowAddress& from) {
  using Codes = CopyOfLane<uint4, 4>;
  using Scales = CopyOfLane<uint32_t, 1>;
  const int64_t code_row = p.pages.format.CodeBytes(), scale_row = p.pages.format.ScaleBytes();
  uint8_t* codes = p.codes + rows.begin * code_row;
  uint8_t* scales = p.scales + rows.begin * scale_row;
  const int code_bytes = static_cast<int>((rows.end - rows.begin) * code_row);
  const int scale_bytes = static_cast<int>((rows.end - rows.begin) * scale_row);
  if (from.data == nullptr) {
    const auto zero = [](int) { return uint8_t{0}; };
    StoreRow(codes, code_bytes, zero);
    StoreRow(scales, scale_bytes, zero);
  } else if (Codes::Takes(from.data, codes, code_bytes) &&
             Scales::Takes(from.scale, scales, scale_bytes)) {
    Codes code_pieces;
    Scales scale_pieces;
    code_pieces.Load(from.data, code_bytes);
    scale_pieces.Load(from.scale, scale_bytes);
    code_pieces.Store(codes, code_bytes);
    scale_pieces.Store(scales, scale_bytes);
  } else {
    CopyBytes(from.data, code_bytes, codes);
    CopyBytes(from.scale, scale_bytes, scales);
  }
}

__global__ void __launch_bounds__(kBlockThreads, kBlocksOfProcessor)
    KeyGatherKernel(const __grid_constant__ KeyGather p,
                    const __grid_constant__ Divisor block_size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const auto check = [&](int64_t request) { CheckRequest(p, request); };
  if (IsCheckingBlock(p.pages.requests, check)) return;
  const int64_t first = WarpOfGrid() * kRowsOfRun;
  const int64_t last = min(first + kRowsOfRun, p.rows);
  for (int64_t row = first; row < last;) {
    const int64_t request = OwnerOf(p, row);
    int64_t end = row + 1;
    RowAddress from;
    if (request >= 0) {
      const RowRange own = RowsOfRequest(p, request);
      const int64_t token = row - own.begin;
      if (token < min(p.pages.capacity, kMaxWalked)) {
        const auto number = static_cast<uint32_t>(token);
        const uint32_t in_block = number - block_size.Quotient(number) * block_size.size;
        end = min(row + block_size.size - in_block, min(own.end, last));
        from = RowOfToken(p.pages, block_size, request, token);
      }
    }
    StoreKeys(p, {row, end}, from);
    row = end;
  }
}

// Blocks for so many warps, and the one that checks.
LaunchShape ShapeForWarps(int64_t warps) {
  return {.grid = static_cast<unsigned>(CeilDiv(warps, kWarps) + 1), .block = kBlockThreads};
}

// Launches the kernel for rows of the known format where they are so.
template <class Known, typename Call, typename... Args>
Error LaunchForRows(void (*known)(Call, Args...), void (*any)(Call, Args...),
                    const LaunchShape& shape, Stream stream, const Call& gather, Args... args) {
  const bool fits = Known::Fits(gather.pages.format, gather.pages.rows, gather.workspace);
  return Launch(fits ? known : any, shape, stream, gather, args...);
}

}  // namespace

Error LaunchLastRowsGather(const LastRowsGather& gather, Stream stream) {
  if (gather.pages.requests == 0) return 0;
  constexpr int64_t kBlocks = 1 << 14;  // of the grid, where there are rows for them
  const int64_t rows = std::max<int64_t>(gather.workspace_rows - gather.offset, 1);
  const int64_t blocks =
      std::clamp<int64_t>(kBlocks / gather.pages.requests, 1, CeilDiv(rows, kWarps * kRowsAtOnce));
  const LaunchShape shape = {.grid = static_cast<unsigned>(gather.pages.requests * blocks),
                             .block = kBlockThreads};
  return LaunchForRows<Fp8Ue8m0Rows>(LastRowsGatherKernel<Fp8Ue8m0Rows>,
                                     LastRowsGatherKernel<AnyRows>, shape, stream, gather,
                                     BlockSizeOf(gather.pages), static_cast<int>(blocks));
}

Error LaunchRequestRowsGather(const RequestRowsGather& gather, Stream stream) {
  if (gather.pages.requests == 0 && gather.workspace_rows == 0) return 0;
  const LaunchShape shape = ShapeForWarps(CeilDiv(gather.workspace_rows, kRowsAtOnce));
  return LaunchForRows<Fp8DsMlaRows>(RequestRowsGatherKernel<Fp8DsMlaRows>,
                                     RequestRowsGatherKernel<AnyRows>, shape, stream, gather,
                                     BlockSizeOf(gather.pages));
}

Error LaunchKeyGather(const KeyGather& gather, Stream stream) {
  if (gather.pages.requests == 0 && gather.rows == 0) return 0;
  const LaunchShape shape = ShapeForWarps(CeilDiv(gather.rows, kRowsOfRun));
  return Launch(KeyGatherKernel, shape, stream, gather, BlockSizeOf(gather.pages));
}

}  // namespace pagefuse::cuda
