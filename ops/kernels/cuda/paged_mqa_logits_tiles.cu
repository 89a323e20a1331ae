// SPDX-License-Identifier: Apache-2.0
// PagedMqaLogits on Hopper: blocks of threads stay and take even shares of all tiles of 64 keys. One warp copies keys and their scales from
// the pages into a ring; three warp groups take turns at its stages, widen keys in registers and multiply them by the query's heads.
#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_ptx.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tensor_map.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/paged_mqa_logits_copies.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

using namespace paged_tiles;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Columns behind the tiles of a group become -inf, by the warps that copy nothing.
__device__ void FillRest(const MqaLogits& call, int groups, int thread, int threads) {
  for (int i = static_cast<int>(blockIdx.x); i < groups; i += static_cast<int>(gridDim.x)) {
    const PagedGroup group = PagedGroupAt(call, i);
    for (int r = 0; r < group.rows; ++r) {
      const int64_t m = group.row + r, filled = RowOf(call, m).filled;
      for (int64_t n = int64_t{group.tiles} * kPagedTile + thread; n < filled; n += threads) {
        call.logits[m * call.width + n] = -INFINITY;
      }
    }
  }
}

// The queries of a group as halves, by the consumers.
__device__ void LoadQueries(const MqaLogits& call, const Places& at, const PagedGroup& group) {
  for (int r = 0; r < group.rows; ++r) {
    const uint8_t* q = call.q + (group.row + r) * kTileHeads * kTileSize;
    for (int i = static_cast<int>(threadIdx.x); i < kTileHeads * kTileSize / 4;
         i += kConsumers * kGroup) {
      const int head = i / (kTileSize / 4), d = i % (kTileSize / 4) * 4;
      uint32_t low, high;
      ptx::Widen(*reinterpret_cast<const uint32_t*>(q + head * kTileSize + d), low, high);
      *reinterpret_cast<uint32_t*>(at.query(r) + PagedQueryPlace(head, d, kTileHeads)) = low;
      *reinterpret_cast<uint32_t*>(at.query(r) + PagedQueryPlace(head, d + 2, kTileHeads)) = high;
    }
  }
  ptx::FenceForProducts();
}

// Two keys of a lane as halves: a[j] is step j of the product. Under a negative scale with their signs changed.
struct Keys {
  uint32_t a[8][4];
  float scale, scale8;  // magnitudes: of row g, and of row g + 8
};

__device__ void LoadKeys(const uint8_t* stage, int warp, int g, int t, Keys& keys) {
  const auto* scales = reinterpret_cast<const float*>(stage + kCodeBytes) + warp * 16 + g;
  keys.scale = scales[0], keys.scale8 = scales[8];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t signs = (r == 0 ? keys.scale : keys.scale8) < 0 ? 0x80808080 : 0;
    const uint8_t* row = stage + (warp * 16 + r * 8 + g) * kTileSize;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 x = *reinterpret_cast<const uint4*>(row + ((2 * t + i) ^ g) * 16);
      ptx::Widen(x.x ^ signs, keys.a[4 * i][r], keys.a[4 * i][r + 2]);
      ptx::Widen(x.y ^ signs, keys.a[4 * i + 1][r], keys.a[4 * i + 1][r + 2]);
      ptx::Widen(x.z ^ signs, keys.a[4 * i + 2][r], keys.a[4 * i + 2][r + 2]);
      ptx::Widen(x.w ^ signs, keys.a[4 * i + 3][r], keys.a[4 * i + 3][r + 2]);
    }
  }
  keys.scale = fabsf(keys.scale), keys.scale8 = fabsf(keys.scale8);
}

// A row of queries, as a lane needs it: weights of heads 8 j + 2 t and the next, and where its logits go.
struct QueryRow {
  float weights[16];
  int end = 0, filled = 0, width = 0;
  float* logits = nullptr;

  __device__ void Load(const MqaLogits& call, int64_t m, int t) {
    const MqaRow row = RowOf(call, m);
    end = static_cast<int>(row.end), filled = static_cast<int>(row.filled);
    width = static_cast<int>(call.width);
    logits = call.logits + m * call.width;
    const float* from = call.weights + m * kTileHeads + 2 * t;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      weights[2 * j] = from[8 * j], weights[2 * j + 1] = from[8 * j + 1];
    }
  }
  __device__ void Store(int n, float logit) const {
    if (n >= width) return;
    if (n < end) {
      logits[n] = logit;
    } else if (n < filled) {
      logits[n] = -INFINITY;
    }
  }
};

// The logit of a key: of row g in even lanes, of row g + 8 in odd ones.
__device__ float Score(const Keys& keys, uint64_t query, const float (&weights)[16], int t) {
  float d[32];
  ptx::BeginProducts();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    ptx::Product64(d, keys.a[j], query + j / 4 * (kQueryBytes / 2 / 16) + j % 4 * 2, j > 0);
  }
  ptx::EndProducts();
  float low = 0, high = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    low += weights[2 * j] * fmaxf(d[4 * j], 0.0f);
    low += weights[2 * j + 1] * fmaxf(d[4 * j + 1], 0.0f);
    high += weights[2 * j] * fmaxf(d[4 * j + 2], 0.0f);
    high += weights[2 * j + 1] * fmaxf(d[4 * j + 3], 0.0f);
  }
  const bool odd = (t & 1) != 0;
  const float pair = (odd ? high : low) + __shfl_xor_sync(kAll, odd ? low : high, 1);
  return (pair + __shfl_xor_sync(kAll, pair, 2)) * (odd ? keys.scale8 : keys.scale);
}

// Tiles number `consumer`, and so on by threes, of a thread block's share.
__device__ void MultiplyAll(const MqaLogits& call, const Places& at, int groups, Range range,
                            int consumer) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup, warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, t = lane % 4;
  int tile = range.first + consumer;
  // Where it lies in the ring, and the phase in which it comes. Stepped: a division would make each
  // tile wait.
  int stage = consumer;
  uint32_t parity = 0;
  for (int reached = range.first; reached < range.end;) {
    const int index = GroupOfTile(at.begins(), groups, reached);
    const PagedGroup group = PagedGroupAt(call, index);
    const int begin = at.begins()[index], end = min(range.end, at.begins()[index + 1]);
    ptx::SyncThreads(1, kConsumers * kGroup);  // nobody reads the queries before
    LoadQueries(call, at, group);
    QueryRow rows[kMostPagedRows];  // the first is always there: nothing asks for it
#pragma unroll
    for (int r = 0; r < kMostPagedRows; ++r) {
      if (r == 0 || r < group.rows) rows[r].Load(call, group.row + r, t);
    }
    ptx::SyncThreads(1, kConsumers * kGroup);
    for (; tile < end; tile += kConsumers) {
      ptx::WaitBarrier(at.full(stage), parity);
      Keys keys;
      LoadKeys(at.stage(stage), warp, g, t, keys);
      __syncwarp();
      if (lane == 0) ptx::Arrive(at.empty(stage));
      stage += kConsumers;
      if (stage >= kStages) stage -= kStages, parity ^= 1;
      const int n = (tile - begin) * kPagedTile + warp * 16 + g + 8 * (t & 1);
#pragma unroll
      for (int r = 0; r < kMostPagedRows; ++r) {
        if (r > 0 && r >= group.rows) break;
        const uint64_t query = ptx::SwizzledTile(ptx::SharedAddress(at.query(r)));
        const float logit = Score(keys, query, rows[r].weights, t);
        if (t < 2) rows[r].Store(n, logit);
      }
    }
    reached = end;
  }
}

#endif

__global__ void __launch_bounds__((kConsumers + 1) * kGroup, 1)
    PagedTilesKernel(const __grid_constant__ CUtensorMap keys,
                     const __grid_constant__ MqaLogits call, int groups) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared[];
  const uint32_t misaligned = ptx::SharedAddress(shared) % kAlignment;
  const Places at{shared + (kAlignment - misaligned) % kAlignment};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::InitBarrier(at.full(i), 1);
      ptx::InitBarrier(at.empty(i), 4);  // the warps of a group
    }
    ptx::FenceBarriers();
  }
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  CountTiles(call, groups, at.begins());  // and all see the barriers
  const int64_t tiles = at.begins()[groups];
  const Range range = {static_cast<int>(tiles * blockIdx.x / gridDim.x),
                       static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x)};
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  if (group < kConsumers) {
    MultiplyAll(call, at, groups, range, group);
  } else if (thread < 32) {
    CopyAll(call, at, groups, range, &keys);
  } else {
    FillRest(call, groups, thread - 32, kGroup - 32);
  }
#endif
}

bool IsAligned(int64_t bytes) { return bytes % 16 == 0; }
bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool FitsPages(const CacheRows& keys) {
  const int64_t size = keys.block_size;
  const bool whole = size % kPagedTile == 0 || size == 8 || size == 16 || size == 32;
  return whole && keys.num_blocks > 0 && keys.num_blocks <= INT32_MAX && size <= INT32_MAX &&
         keys.data_strides.row == kTileSize && keys.scale_strides.row == 4 &&
         keys.scale_strides.block == keys.data_strides.block && IsAligned(keys.data) &&
         IsAligned(keys.scales) && IsAligned(keys.data_strides.block);
}

}  // namespace

bool FitsPagedTiles(const MqaLogits& call) {
  return call.block_table != nullptr && call.query_type == DataType::kFloat8E4M3FN &&
         call.key_format == MqaKeyFormat::kFloat8 && call.heads == kTileHeads &&
         call.head_size == kTileSize && IsAligned(call.q) && FitsPages(call.keys) &&
         call.width <= INT32_MAX - kPagedTile && PagedGroupsOf(call) <= kMostPagedGroups &&
         PagedGroupsOf(call) * CeilDiv(call.width, kPagedTile) <= INT32_MAX / 16 &&
         HasHopperProducts();
}

Error LaunchPagedTiles(const MqaLogits& call, Stream stream) {
  CUtensorMap map;
  const auto block_bytes = static_cast<uint64_t>(call.keys.data_strides.block);
  const bool made =
      MakeTensorMap({.type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                     .data = call.keys.data,
                     .dims = {kTileSize, static_cast<uint64_t>(call.keys.block_size),
                              static_cast<uint64_t>(call.keys.num_blocks)},
                     .strides = {kTileSize, block_bytes},
                     .box = {kTileSize, static_cast<uint32_t>(KeysOfCopy(call.keys.block_size)), 1},
                     .rank = 3},
                    map);
  if (!made) return cudaErrorNotSupported;
  int device = 0, sms = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const Error error = cudaFuncSetAttribute(
      PagedTilesKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != 0) return error;
  return Launch(PagedTilesKernel,
                {.grid = static_cast<unsigned>(sms),
                 .block = (kConsumers + 1) * kGroup,
                 .shared_bytes = kSharedBytes},
                stream, map, call, static_cast<int>(PagedGroupsOf(call)));
}

}  // namespace pagefuse::cuda
