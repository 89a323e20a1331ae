// SPDX-License-Identifier: Apache-2.0
// The kernel of SparseMlaAttention on tiles, for .cu files with some of its instances: rows come to a ring of stages in shared memory by copies
// of 16 bytes, those of the tiles ahead while one is computed.
#pragma once

#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_sums.h"

namespace pagefuse::cuda::latent {

// kExact: queries and weights in parts.
template <class RowsOf, int kHeadTilesOf, bool kExactOf>
struct TilesConfig {
  using Rows = RowsOf;
  static constexpr bool kExact = kExactOf;
  static constexpr int kHeadTiles = kHeadTilesOf, kHeads = kHeadTiles * kLatentTileHeads;
  // Three bfloat16 hold a float; of weights, which are at most 1, 16 bits are enough.
  static constexpr int kQueryParts = kExact ? 3 : 1, kWeightParts = kExact ? 2 : 1;
  static constexpr int kResidents = LatentResidents(kExact, kHeadTiles);

  // Bytes of shared memory, from the end of the stages on.
  static constexpr int kTileStride = 2 * Rows::kSize + kPadding;
  static constexpr int kTileBytes = Rows::kWidens ? kLatentTileRows * kTileStride : 0;
  static constexpr int kScoreBytes = kQuarters * kHeads * kScoreStride * 4;
  static constexpr int kWeightBytes = kWeightParts * kHeads * kWeightStride;
  static constexpr int kKeepBytes = kHeads * 4;
  static constexpr int kMostStages = 4;
  static constexpr int kFixedBytes =
      kTileBytes + kScoreBytes + kWeightBytes + kKeepBytes + kMostStages * kLatentTileRows;
  static constexpr int kStageBytes = kLatentTileRows * Rows::kStride;
  // What a GPU of sm_80 or sm_90 has for as many CTAs.
  static constexpr int kMostBytes = kResidents == 1 ? 160 << 10 : 112 << 10;
  static constexpr int kStages = std::min((kMostBytes - kFixedBytes) / kStageBytes, kMostStages);
  static_assert(kStages >= 2);
  static constexpr int kBytes = kStages * kStageBytes + kFixedBytes;
};

template <class Config>
struct TilesShared {
  uint8_t* base;

  __device__ uint8_t* stage(int i) const { return base + i * Config::kStageBytes; }
  // The tile that products read: of stage i, or that of widened rows.
  __device__ uint8_t* tile(int i) const {
    return stage(Config::Rows::kWidens ? Config::kStages : i);
  }
  __device__ float* scores() const {
    return reinterpret_cast<float*>(stage(Config::kStages) + Config::kTileBytes);
  }
  __device__ uint8_t* weights() const {
    return reinterpret_cast<uint8_t*>(scores()) + Config::kScoreBytes;
  }
  __device__ float* keeps() const {
    return reinterpret_cast<float*>(weights() + Config::kWeightBytes);
  }
  // Which rows of stage i there are.
  __device__ bool* present(int i) const {
    return reinterpret_cast<bool*>(keeps() + Config::kHeads) + i * kLatentTileRows;
  }
};

// Fetches the tiles of some places, in order. What lists and tables say of the next tile is read while this one is computed.
template <class Config>
struct TileFetcher {
  int place;  // of the lane's row: row lane % 4 of the warp's
  int32_t entry;
  int stage = 0;

  __device__ TileFetcher(const SparseMla& call, const SeenRows& seen, int begin)
      : place(begin + WarpId() * kWarpRows + LaneId() % kWarpRows) {
    entry = EntryAt(call, seen, place);
  }
  __device__ void Next(const SparseMla& call, const SeenRows& seen,
                       const TilesShared<Config>& shared) {
    const RowAddress row = RowOfEntry(call, seen, place, entry);
    if (LaneId() < kWarpRows) {
      shared.present(stage)[WarpId() * kWarpRows + LaneId()] = row.data != nullptr;
    }
    CopyWarpRows<typename Config::Rows>(row, call.q, shared.stage(stage));
    ptx::CommitCopies();
    place += kLatentTileRows;
    entry = EntryAt(call, seen, place);
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
  }
};

// What a CTA found of its heads.
template <class Config>
struct TileSums {
  TileSoftmax<Config::kHeads, Config::kWeightParts> softmax;
  TileValues<Config::kHeadTiles, Config::kWeightParts> values;
};

// Adds what places [begin, seen.count) give.
template <class Config>
__device__ void AttendTiles(const SparseMla& call, const SeenRows& seen, int begin, int64_t head,
                            const TilesShared<Config>& shared, TileSums<Config>& sums) {
  constexpr float kLog2E = 1.4426950408889634f;
  using Rows = typename Config::Rows;
  const int count = (seen.count - begin + kLatentTileRows - 1) / kLatentTileRows;
  TileFetcher<Config> fetcher(call, seen, begin);
#pragma unroll 1
  for (int i = 0; i < Config::kStages - 1; ++i) fetcher.Next(call, seen, shared);
  QueryFragments<Rows::kSize, Config::kHeadTiles, Config::kQueryParts> query;
  query.Load(call, seen.token, head);
  const float factor = call.scale * kLog2E;
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    ptx::WaitForCopies<Config::kStages - 2>();
    __syncthreads();  // the tile is there, and all have left the one before
    if constexpr (Rows::kWidens) {
      WidenWarpRows<Rows>(shared.stage(stage), Config::kTileStride, shared.tile(stage));
    }
    fetcher.Next(call, seen, shared);
    if constexpr (Rows::kWidens) __syncthreads();
    const uint8_t* tile = shared.tile(stage);
    query.Score(tile, Config::kTileStride, shared.scores());
    __syncthreads();
    sums.softmax.Weigh(shared.scores(), factor, shared.present(stage)[LaneId()], shared.weights(),
                       shared.keeps());
    __syncthreads();
    sums.values.Rescale(shared.keeps());
    sums.values.Add(shared.weights(), tile, Config::kTileStride);
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
  }
  ptx::WaitForCopies<0>();
}

// Two neighbouring channels of an output.
__device__ inline void StorePair(const SinkResults& results, int64_t at, float low, float high) {
  switch (results.type) {
    case DataType::kFloat16:
      *reinterpret_cast<uint32_t*>(static_cast<Half*>(results.out) + at) = PackHalves(low, high);
      return;
    case DataType::kBfloat16:
      *reinterpret_cast<uint32_t*>(static_cast<Bfloat*>(results.out) + at) = PackBfloats(low, high);
      return;
    default:
      *reinterpret_cast<float2*>(static_cast<float*>(results.out) + at) = make_float2(low, high);
  }
}

// The result of a split, or of all rows where there is one alone. `row` is that of the first head among [T, H], of which there are `heads`.
template <class Config>
__device__ void StoreTiles(const SinkResults& results, int64_t row, int heads, int split,
                           const TilesShared<Config>& shared, TileSums<Config>& sums) {
  const bool partial = results.splits > 1;
  float* factors = shared.scores();  // all warps have read the last scores
#pragma unroll
  for (int i = 0; i < sums.softmax.kOwn; ++i) {
    const int head = sums.softmax.HeadOf(i);
    const RowSums all = {sums.softmax.max[i], SumOfLanes(sums.softmax.sum[i])};
    if (LaneId() != 0 || head >= heads) continue;
    if (partial) StoreSums(results, PartialOf(results, row + head, split), all);
    factors[head] = partial ? 1 : FinishSums(results, row + head, all);
  }
  __syncthreads();
  const int channel = WarpId() * kWarpChannels + 2 * (LaneId() % 4);
#pragma unroll
  for (int m = 0; m < Config::kHeadTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = m * kLatentTileHeads + 8 * half + LaneId() / 4;
      if (head >= heads) continue;
      const float factor = factors[head];
#pragma unroll
      for (int n = 0; n < sums.values.kColumns; ++n) {
        const float* pair = sums.values.sums[m][n] + 2 * half;
        const int d = channel + 8 * n;
        if (partial) {
          const int64_t at = PartialOf(results, row + head, split) * kLatentValues + d;
          *reinterpret_cast<float2*>(results.partial_values + at) = make_float2(pair[0], pair[1]);
        } else {
          const bool some = factor != 0;
          StorePair(results, (row + head) * kLatentValues + d, some ? pair[0] * factor : 0,
                    some ? pair[1] * factor : 0);
        }
      }
    }
  }
}

// CTAs that registers are shared out among: sm_80 has shared memory for one alone.
template <class Config>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kRegisterShares = 1;
#else
inline constexpr int kRegisterShares = Config::kResidents;
#endif

template <class Config>
__global__ void __launch_bounds__(kTileThreads, kRegisterShares<Config>)
    LatentTilesKernel(const __grid_constant__ SparseMla call,
                      const __grid_constant__ SinkResults results, const LatentTiles tiles) {
  extern __shared__ float4 latent_tiles[];
  const TilesShared<Config> shared = {reinterpret_cast<uint8_t*>(latent_tiles)};
  ptx::WaitForKernelBefore();
  if (blockIdx.x == 0 && call.is_dense) CheckStarts(call);
  // Groups of heads read the same rows: they are neighbours.
  const auto groups = static_cast<unsigned>(tiles.head_groups);
  const auto splits = static_cast<unsigned>(tiles.splits);
  const int64_t head = int64_t{blockIdx.x % groups} * Config::kHeads;
  const auto split = static_cast<int>(blockIdx.x / groups % splits);
  const auto token = static_cast<int>(blockIdx.x / groups / splits);
  SeenRows seen = RowsOfToken(call, token);
  const Places places = SplitOf(seen, tiles.splits, split);
  seen.count = places.end;
  TileSums<Config> sums;
  sums.softmax.Clear();
  sums.values.Clear();
  if (places.begin < places.end) {
    AttendTiles<Config>(call, seen, places.begin, head, shared, sums);
  }
  ptx::LetNextKernelBegin();
  const auto heads = static_cast<int>(min(int64_t{Config::kHeads}, call.heads - head));
  StoreTiles<Config>(results, int64_t{token} * call.heads + head, heads, split, shared, sums);
}

template <class Config>
Error LaunchTilesOf(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                    Stream stream) {
  const auto kernel = LatentTilesKernel<Config>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, Config::kBytes); error != 0) {
    return error;
  }
  const int64_t ctas = call.tokens * tiles.head_groups * tiles.splits;
  if (ctas > INT32_MAX) return kTooLarge;
  const LaunchShape launch = {dim3(static_cast<unsigned>(ctas)), dim3(kTileThreads),
                              Config::kBytes};
  return Launch(kernel, launch, stream, call, results, tiles);
}

// The instance of a format's rows that a call takes.
template <class Rows>
Error LaunchRowsOf(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                   Stream stream) {
  if (tiles.exact) return LaunchTilesOf<TilesConfig<Rows, 1, true>>(call, results, tiles, stream);
  if (tiles.head_tiles == 1) {
    return LaunchTilesOf<TilesConfig<Rows, 1, false>>(call, results, tiles, stream);
  }
  return LaunchTilesOf<TilesConfig<Rows, 2, false>>(call, results, tiles, stream);
}

}  // namespace pagefuse::cuda::latent
