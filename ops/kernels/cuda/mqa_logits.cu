// SPDX-License-Identifier: Apache-2.0
// Index scores of any types and sizes: a block of threads takes some keys of one row of queries, 16 of them at a time,
// with queries and keys as floats in shared memory. A thread sums for one head and four keys.
#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_pieces.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_rows.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

using namespace mqa_pieces;

constexpr int kHeads = 64;                                // of a piece, a thread each
constexpr int kKeysOfThread = 4;                          // for which it sums
constexpr int kKeys = kThreads / kHeads * kKeysOfThread;  // of a tile
constexpr int kPadding = 4;  // so that neighbours read from other banks

struct Shared {
  alignas(16) float q[kHeads][kDepth + kPadding];
  alignas(16) float k[kKeys][kDepth];
  Row keys[kKeys];
  float scales[kKeys];
  float sums[kWarps][kKeysOfThread];
};

__device__ bool AreMultiples(int64_t a, int64_t b, int64_t c, int of) {
  return ((a | b | c) & (of - 1)) == 0;
}

template <class Elements>
__device__ void LoadQueriesOf(const MqaLogits& call, int64_t m, int h0, int d0, Shared& shared) {
  // Elements of queries take a byte or more.
  const int64_t row_bytes = int64_t{call.head_size} * (Elements::kFourBytes / 4);
  const uint8_t* first = call.q + (m * call.heads + h0) * row_bytes;
  const auto row_at = [&](int h) {
    return Row{.data = h0 + h < call.heads ? first + h * row_bytes : nullptr};
  };
  const bool in_fours = call.head_size % 4 == 0 && AreMultiples(reinterpret_cast<intptr_t>(call.q),
                                                                0, 0, Elements::kFourBytes);
  LoadRows<Elements>(row_at, d0, call.head_size, in_fours, shared.q);
}

__device__ void LoadQueries(const MqaLogits& call, int64_t m, int h0, int d0, Shared& shared) {
  switch (call.query_type) {
    case DataType::kFloat:
      return LoadQueriesOf<Numbers<float>>(call, m, h0, d0, shared);
    case DataType::kFloat16:
      return LoadQueriesOf<Numbers<Half>>(call, m, h0, d0, shared);
    case DataType::kBfloat16:
      return LoadQueriesOf<Numbers<Bfloat>>(call, m, h0, d0, shared);
    default:
      return LoadQueriesOf<Codes>(call, m, h0, d0, shared);
  }
}

template <class Elements>
__device__ void LoadKeysOf(const MqaLogits& call, int d0, Shared& shared) {
  const CacheRows& keys = call.keys;
  const bool in_fours = call.head_size % 4 == 0 &&
                        AreMultiples(reinterpret_cast<intptr_t>(keys.data), keys.data_strides.block,
                                     keys.data_strides.row, Elements::kFourBytes);
  const auto row_at = [&](int key) { return shared.keys[key]; };
  LoadRows<Elements>(row_at, d0, call.head_size, in_fours, shared.k);
}

__device__ void LoadKeys(const MqaLogits& call, int d0, Shared& shared) {
  switch (call.key_format) {
    case MqaKeyFormat::kFloat:
      return LoadKeysOf<Numbers<float>>(call, d0, shared);
    case MqaKeyFormat::kFloat16:
      return LoadKeysOf<Numbers<Half>>(call, d0, shared);
    case MqaKeyFormat::kBfloat16:
      return LoadKeysOf<Numbers<Bfloat>>(call, d0, shared);
    case MqaKeyFormat::kFourBits:
      return LoadKeysOf<FourBitCodes>(call, d0, shared);
    default:
      return LoadKeysOf<Codes>(call, d0, shared);
  }
}

// --- scores ---

// Where a thread is: its head of a piece, and the first of its keys of a tile.
struct Place {
  int head = static_cast<int>(threadIdx.x) % kHeads;
  int key = static_cast<int>(threadIdx.x) / kHeads * kKeysOfThread;
};

// Adds the products of `depth` elements of pieces, a multiple of four.
__device__ void AddDots(const Shared& shared, const Place& place, int depth,
                        float (&dots)[kKeysOfThread]) {
#pragma unroll 4
  for (int d = 0; d < depth; d += 4) {
    const auto q = *reinterpret_cast<const Vector<float, 4>*>(&shared.q[place.head][d]);
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const auto k = *reinterpret_cast<const Vector<float, 4>*>(&shared.k[place.key + i][d]);
#pragma unroll
      for (int j = 0; j < 4; ++j) dots[i] += q.at[j] * k.at[j];
    }
  }
}

// The queries of a row where they are one piece: they are loaded once.
struct Queries {
  bool stay, loaded = false;

  __device__ explicit Queries(const MqaLogits& call)
      : stay(call.heads <= kHeads && call.head_size <= kDepth) {}
};

// This thread's part of the sums over heads, of its keys of the tile. All threads see shared.keys and shared.scales.
__device__ void AddScores(const MqaLogits& call, int64_t m, Queries& queries, Shared& shared,
                          float (&sums)[kKeysOfThread]) {
  const Place place;
  for (int h0 = 0; h0 < call.heads; h0 += kHeads) {
    const bool has_head = h0 + place.head < call.heads;
    const float weight = has_head ? call.weights[m * call.heads + h0 + place.head] : 0.0f;
    float dots[kKeysOfThread] = {};
    for (int d0 = 0; d0 < call.head_size; d0 += kDepth) {
      if (h0 + d0 != 0) __syncthreads();
      if (!queries.stay || !queries.loaded) LoadQueries(call, m, h0, d0, shared);
      queries.loaded = true;
      LoadKeys(call, d0, shared);
      __syncthreads();
      AddDots(shared, place, min(kDepth, (call.head_size - d0 + 3) / 4 * 4), dots);
    }
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const float dot = dots[i] * shared.scales[place.key + i];
      if (has_head) sums[i] += weight * fmaxf(0.0f, dot);
    }
  }
}

// Keys [first, first + kKeys), of which the row sees some.
__device__ void ScoreTile(const MqaLogits& call, int64_t m, const MqaRow& row, int64_t first,
                          Queries& queries, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t n = first + thread;
  const bool inside = thread < kKeys && n >= row.begin && n < row.end;
  if (thread < kKeys) {
    const RowAddress key = inside ? KeyOf(call, row.sequence, n) : RowAddress{};
    const bool scaled = call.key_format == MqaKeyFormat::kFloat8 && key.scale != nullptr;
    shared.keys[thread] = {key.data, key.scale};
    shared.scales[thread] = scaled ? LoadFloatBytes(key.scale) : 1.0f;
  }
  __syncthreads();
  float sums[kKeysOfThread] = {};
  AddScores(call, m, queries, shared, sums);
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    const float sum = SumOfLanes(sums[i]);
    if (LaneId() == 0) shared.sums[thread / kWarp][i] = sum;
  }
  __syncthreads();
  if (!inside) return;
  constexpr int kWarpsOfKey = kHeads / kWarp;
  float logit = 0;
  for (int w = 0; w < kWarpsOfKey; ++w) {
    logit += shared.sums[thread / kKeysOfThread * kWarpsOfKey + w][thread % kKeysOfThread];
  }
  call.logits[m * call.width + n] = logit;
}

// `keys` columns of one row, a multiple of kKeys.
__global__ void __launch_bounds__(kThreads, 2)
    MqaLogitsKernel(const __grid_constant__ MqaLogits call, int64_t keys) {
  __shared__ Shared shared;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t blocks = CeilDiv(call.width, keys);
  const int64_t m = blockIdx.x / blocks, first = blockIdx.x % blocks * keys;
  const MqaRow row = RowOf(call, m);
  const int64_t filled = min(first + keys, row.filled);
  for (int64_t n = first + threadIdx.x; n < filled; n += kThreads) {
    if (n < row.begin || n >= row.end) call.logits[m * call.width + n] = -INFINITY;
  }
  Queries queries(call);
  const int64_t begin = max(first, row.begin / kKeys * kKeys), end = min(first + keys, row.end);
  for (int64_t tile = begin; tile < end; tile += kKeys) {
    ScoreTile(call, m, row, tile, queries, shared);
  }
}

Error LaunchPlain(const MqaLogits& call, Stream stream) {
  // Long rows are cut so that every multiprocessor has some blocks, and each block loads its queries once.
  constexpr int64_t kBlocks = 4, kMostTiles = 64;
  const int64_t tiles = CeilDiv(call.width, kKeys);
  if (tiles > INT32_MAX / call.rows) return kTooLarge;
  const int64_t of_block =
      std::clamp<int64_t>(CeilDiv(tiles * call.rows, kBlocks * Multiprocessors()), 1, kMostTiles);
  const int64_t blocks = CeilDiv(tiles, of_block) * call.rows;
  return Launch(MqaLogitsKernel, {.grid = static_cast<unsigned>(blocks), .block = kThreads}, stream,
                call, of_block * kKeys);
}

}  // namespace

size_t MqaLogitsWorkspace(const MqaLogits& call) {
  return FitsDenseTiles(call) ? DenseTilesWorkspace(call) : 0;
}

Error LaunchMqaLogits(const MqaLogits& call, void* workspace, Stream stream) {
  if (call.rows == 0 || call.width == 0) return 0;
  Error error = cudaErrorNotSupported;  // also where the driver does not copy such tiles
  if (FitsDenseTiles(call)) error = LaunchDenseTiles(call, workspace, stream);
  if (FitsPagedTiles(call)) error = LaunchPagedTiles(call, stream);
  return error == cudaErrorNotSupported ? LaunchPlain(call, stream) : error;
}

}  // namespace pagefuse::cuda
