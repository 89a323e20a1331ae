// SPDX-License-Identifier: Apache-2.0
// Sorts rows by expert. One block does it: rows are at most some thousands, and the products behind it take much longer.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_products_order.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

constexpr int kMostThreads = 1024, kMostWarps = kMostThreads / kWarp;

struct OrderCall {
  RowOrder order;
  int row_count = 0, tile_rows = 1, tile_count = 0;
  ExpertTile* tiles = nullptr;
  int32_t* rows = nullptr;
  int32_t* places = nullptr;  // those of many experts
};

// Rows and tiles, added up together.
__device__ uint64_t Pair(int rows, int tiles) {
  return static_cast<uint64_t>(rows) << 32 | static_cast<uint32_t>(tiles);
}
__device__ int RowsOf(uint64_t pair) { return static_cast<int>(pair >> 32); }
__device__ int TilesOf(uint64_t pair) { return static_cast<int>(pair & 0xFFFFFFFFu); }

// What the threads before this one have, and in `all` what all have. All threads call it.
__device__ uint64_t SumBefore(uint64_t own, uint64_t& all) {
  __shared__ uint64_t warps[kMostWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  uint64_t sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (LaneId() >= distance) sum += other;
  }
  __syncthreads();  // what was there is read
  if (LaneId() == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  uint64_t before = 0;
  all = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
    if (i == warp) before = all;
    all += warps[i];
  }
  return before + sum - own;
}

// Those of one expert.
__device__ void MakeTiles(const OrderCall& call, int expert, int first, int count, int tile) {
  for (int done = 0; done < count; done += call.tile_rows) {
    call.tiles[tile++] = {expert, first + done, min(count - done, call.tile_rows)};
  }
}

__global__ void __launch_bounds__(kMostThreads)
    OrderRowsKernel(const __grid_constant__ OrderCall call) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  __shared__ int32_t few_places[kMostThreads];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int experts = call.order.experts;
  int32_t* places = experts < kMostThreads ? few_places : call.places;
  // Of experts and of none: how many rows, then where the next one goes. Those of no expert come last.
  const auto place_of = [&](int row, bool tells) {
    const int expert = call.order.ExpertOf(row, tells);
    return places + (expert < 0 ? experts : expert);
  };
  for (int i = thread; i <= experts; i += threads) places[i] = 0;
  __syncthreads();
  for (int row = thread; row < call.row_count; row += threads) atomicAdd(place_of(row, true), 1);
  __syncthreads();
  uint64_t before = 0;
  for (int begin = 0; begin <= experts; begin += threads) {
    const int expert = begin + thread;
    const int count = expert <= experts ? places[expert] : 0;
    const int tiles = (count + call.tile_rows - 1) / call.tile_rows;
    uint64_t all = 0;
    const uint64_t at = before + SumBefore(Pair(count, tiles), all);
    before += all;
    if (expert > experts) continue;
    MakeTiles(call, expert == experts ? -1 : expert, RowsOf(at), count, TilesOf(at));
    places[expert] = RowsOf(at);
  }
  for (int i = TilesOf(before) + thread; i < call.tile_count; i += threads) call.tiles[i] = {};
  __syncthreads();
  for (int row = thread; row < call.row_count; row += threads) {
    call.rows[atomicAdd(place_of(row, false), 1)] = row;
  }
}

// Parts of the scratch memory, each where 16 bytes may be stored.
struct Parts {
  int64_t tiles, rows, places;  // bytes

  Parts(const GroupedProductParams& params, int tile_rows) {
    const auto padded = [](int64_t bytes) { return CeilDiv(bytes, 16) * 16; };
    tiles = ExpertTiles(params, tile_rows) * static_cast<int64_t>(sizeof(ExpertTile));
    rows = padded(params.rows * 4);
    places = padded((params.experts + 1) * 4);
  }
};

}  // namespace

int64_t ExpertTiles(const GroupedProductParams& params, int tile_rows) {
  if (tile_rows == 1) return params.rows;
  const int64_t groups = std::min(params.experts + 1, params.rows);
  return std::min(params.rows, (params.rows + groups * (tile_rows - 1)) / tile_rows);
}

size_t RowOrderBytes(const GroupedProductParams& params, int tile_rows) {
  if (tile_rows == 1) return 0;
  const Parts parts(params, tile_rows);
  return static_cast<size_t>(parts.tiles + parts.rows + parts.places);
}

Error LaunchRowOrder(const GroupedProductParams& params, int tile_rows, void* scratch,
                     RowOrder& order, Stream stream) {
  order = {.ids = params.ids, .wide_ids = params.wide_ids};
  order.experts = static_cast<int>(params.experts);
  order.repeat = static_cast<int>(params.repeat);
  order.errors = params.errors;
  order.ids_input = params.ids_input;
  if (tile_rows == 1) return 0;
  const Parts parts(params, tile_rows);
  auto* memory = static_cast<char*>(scratch);
  OrderCall call{.order = order};
  call.row_count = static_cast<int>(params.rows);
  call.tile_rows = tile_rows;
  call.tile_count = static_cast<int>(ExpertTiles(params, tile_rows));
  call.tiles = reinterpret_cast<ExpertTile*>(memory);
  call.rows = reinterpret_cast<int32_t*>(memory + parts.tiles);
  call.places = reinterpret_cast<int32_t*>(memory + parts.tiles + parts.rows);
  order.tiles = call.tiles;
  order.rows = call.rows;
  // A thread an expert, or a row.
  const int64_t most = std::max(params.experts + 1, params.rows);
  const int64_t threads = std::min<int64_t>(CeilDiv(most, kWarp) * kWarp, kMostThreads);
  return Launch(OrderRowsKernel, {.grid = 1, .block = static_cast<unsigned>(threads)}, stream,
                call);
}

}  // namespace pagefuse::cuda
