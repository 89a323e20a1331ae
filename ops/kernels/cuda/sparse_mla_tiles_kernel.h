// SPDX-License-Identifier: Apache-2.0
// The kernel of SparseMlaAttention on tiles, for .cu files with some of its instances: rows come to a ring in shared memory by copies of 16
// bytes, those of the tiles ahead while one is computed.
#pragma once

#include <algorithm>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_results.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_sums.h"

namespace pagefuse::cuda::latent {

// kExact: queries and weights in parts.
template <class RowsOf, int kHeadTilesOf, bool kExactOf>
struct TilesConfig {
  using Rows = RowsOf;
  using Work = TileWork<kHeadTilesOf>;
  using Results = TileResults<Work::kHeads>;
  static constexpr bool kExact = kExactOf;
  // Three bfloat16 hold a float; of weights, which are at most 1, 16 bits are enough.
  static constexpr int kQueryParts = kExact ? 3 : 1, kWeightParts = kExact ? 2 : 1;
  static constexpr int kResidents = LatentResidents(kExact, kHeadTilesOf);

  // Rows are copied in groups, a row by each warp; the ring has those of a tile and what is ahead.
  static constexpr int kGroupRows = Work::kWarps, kTileGroups = kLatentTileRows / kGroupRows;
  static constexpr int kGroupBytes = kGroupRows * Rows::kStride;
  static constexpr int kMostGroups = 4 * kTileGroups;

  // Bytes of shared memory, from the end of the ring on.
  static constexpr int kTileStride = 2 * Rows::kSize + kPadding;
  static constexpr int kTileBytes = Rows::kWidens ? kLatentTileRows * kTileStride : 0;
  static constexpr int kScoreBytes = kQuarters * Work::kHeads * kScoreStride * 4;
  static constexpr int kWeightBytes = kWeightParts * Work::kHeads * kWeightStride;
  static constexpr int kKeepBytes = Work::kHeads * 4;
  using Query = std::conditional_t<(Work::kWarps > 8), SharedQuery<Rows::kSize, Work>,
                                   RegisterQuery<Rows::kSize, Work, kQueryParts>>;
  static_assert(Work::kWarps == 8 || !kExact);
  static constexpr int kFixedBytes = kTileBytes + kScoreBytes + kWeightBytes + Query::kBytes +
                                     kKeepBytes + kMostGroups * kGroupRows;
  // What a GPU of sm_80 or sm_90 has for as many CTAs, one of 16 warps what sm_90 has.
  static constexpr int kMostBytes = Work::kWarps > 8  ? kLatentManyHeadsBytes
                                    : kResidents == 1 ? 160 << 10
                                                      : 112 << 10;
  static constexpr int kGroups = std::min((kMostBytes - kFixedBytes) / kGroupBytes, kMostGroups);
  static constexpr int kAhead = kGroups - kTileGroups;  // groups
  static_assert(kAhead >= kTileGroups);
  static constexpr int kBytes = kGroups * kGroupBytes + kFixedBytes;
  static_assert(Results::kBytes <= kBytes);
};

// Rows of a tile: of a ring from group `first` on, or of a tile that widened ones fill.
template <class Config>
struct TileView {
  const uint8_t* base;
  int first;

  __device__ const uint8_t* Row(int row) const {
    int group = first + row / Config::kGroupRows;
    if (group >= Config::kGroups) group -= Config::kGroups;
    return base + (group * Config::kGroupRows + row % Config::kGroupRows) * Config::kTileStride;
  }
};

template <class Config>
struct TilesShared {
  uint8_t* base;

  // Place i of the ring, less than twice around.
  __device__ static int Around(int i) { return i < Config::kGroups ? i : i - Config::kGroups; }
  // The warp's row of a group.
  __device__ uint8_t* own_row(int group) const {
    return base + group * Config::kGroupBytes + WarpId() * Config::Rows::kStride;
  }
  __device__ uint8_t* widened() const { return base + Config::kGroups * Config::kGroupBytes; }
  // The tile that products read.
  __device__ TileView<Config> tile(int first) const {
    if constexpr (Config::Rows::kWidens) return {widened(), 0};
    return {base, first};
  }
  __device__ float* scores() const {
    return reinterpret_cast<float*>(widened() + Config::kTileBytes);
  }
  __device__ uint8_t* weights() const {
    return reinterpret_cast<uint8_t*>(scores()) + Config::kScoreBytes;
  }
  __device__ uint8_t* query() const { return weights() + Config::kWeightBytes; }
  __device__ float* keeps() const {
    return reinterpret_cast<float*>(query() + Config::Query::kBytes);
  }
  // Which rows of a group there are.
  __device__ bool* present(int group) const {
    return reinterpret_cast<bool*>(keeps() + Config::Work::kHeads) + group * Config::kGroupRows;
  }
};

// Fetches the rows of a token's places in order, as many groups at a time as a tile has. What lists and tables say of them is read two such
// steps before.
template <class Config>
struct TileFetcher {
  static constexpr int kStep = Config::kTileGroups;
  // Steps before the first tile is computed. Where they are not whole, the first groups have places before the first one, which are no rows.
  static constexpr int kFirstSteps = (Config::kAhead + kStep - 1) / kStep;
  static constexpr int kNone = kFirstSteps * kStep - Config::kAhead;

  int place;         // of the lane's row: of group lane % kStep, the warp's
  int32_t entry[2];  // of this place, and of that of the next step

  __device__ TileFetcher(const SparseMla& call, const SeenRows& seen)
      : place(seen.begin + (LaneId() % kStep - kNone) * Config::kGroupRows + WarpId()) {
    entry[0] = EntryAt(call, seen, place);
    entry[1] = EntryAt(call, seen, place + kLatentTileRows);
  }
  // To groups of the ring from `group` on.
  __device__ void Next(const SparseMla& call, const SeenRows& seen, int group,
                       const TilesShared<Config>& shared) {
    const RowAddress row = RowOfEntry(call, seen, place, entry[0]);
    if (LaneId() < kStep) {
      shared.present(shared.Around(group + LaneId()))[WarpId()] = row.data != nullptr;
    }
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const uint8_t* scale = Config::Rows::kScaleBytes > 0 ? OfLane(row.scale, i) : nullptr;
      CopyRowAsync<typename Config::Rows>(OfLane(row.data, i), scale, call.q,
                                          shared.own_row(shared.Around(group + i)));
      ptx::CommitCopies();
    }
    place += kLatentTileRows;
    entry[0] = entry[1];
    entry[1] = EntryAt(call, seen, place + kLatentTileRows);
  }
};

// What a CTA found of its heads.
template <class Config>
struct TileSums {
  TileSoftmax<typename Config::Work, Config::kWeightParts> softmax;
  TileValues<typename Config::Work, Config::kWeightParts> values;
};

// The warp's rows of a tile, widened.
template <class Config>
__device__ void WidenRows(const TilesShared<Config>& shared, int first) {
#pragma unroll 2
  for (int i = 0; i < Config::kTileGroups; ++i) {
    const int row = i * Config::kGroupRows + WarpId();
    WidenRow<typename Config::Rows>(shared.own_row(shared.Around(first + i)),
                                    shared.widened() + row * Config::kTileStride);
  }
}

// Adds a tile, which begins at group `first` of the ring.
template <class Config>
__device__ void AddTile(const SparseMla& call, const TilesShared<Config>& shared, int first,
                        const typename Config::Query& query, TileSums<Config>& sums) {
  constexpr float kLog2E = 1.4426950408889634f;
  if constexpr (Config::Rows::kWidens) __syncthreads();
  const TileView<Config> tile = shared.tile(first);
  TileScores<Config::Rows::kSize, typename Config::Work, Config::kQueryParts> scores;
  scores.Add(query, tile);
  scores.Store(shared.scores());
  __syncthreads();
  const int own = shared.Around(first + LaneId() / Config::kGroupRows);
  sums.softmax.Weigh(shared.scores(), call.scale * kLog2E,
                     shared.present(own)[LaneId() % Config::kGroupRows], shared.weights(),
                     shared.keeps());
  __syncthreads();
  sums.values.Rescale(shared.keeps());
  sums.values.Add(shared.weights(), tile);
}

// Adds what the places give, of which there is one at least.
template <class Config>
__device__ void AttendTiles(const SparseMla& call, const SeenRows& seen, int64_t head,
                            const TilesShared<Config>& shared, TileSums<Config>& sums) {
  using Rows = typename Config::Rows;
  using Fetcher = TileFetcher<Config>;
  Fetcher fetcher(call, seen);
  sums.softmax.Begin();
  const typename Config::Query query(call, seen.token, head, shared.query());
  const int count = (seen.count - seen.begin + kLatentTileRows - 1) / kLatentTileRows;
  // Group of the tile that is computed; before the first one, of where it would be.
  int first = Config::kGroups - Fetcher::kFirstSteps * Config::kTileGroups;
#pragma unroll 1
  for (int i = -Fetcher::kFirstSteps; i < count; ++i) {
    if (i >= 0) {
      ptx::WaitForCopies<Config::kAhead - Config::kTileGroups>();
      __syncthreads();  // the tile is there, and all have left the one before
      if constexpr (Rows::kWidens) WidenRows(shared, first);
    }
    fetcher.Next(call, seen, shared.Around(first + Config::kAhead), shared);
    if (i >= 0) AddTile(call, shared, first, query, sums);
    first = shared.Around(first + Config::kTileGroups);
  }
  ptx::WaitForCopies<0>();
}

// Leaves what was found over the tiles.
template <class Config>
__device__ void LeaveSums(const TileSums<Config>& sums, const typename Config::Results& results) {
  __syncthreads();  // all have left the last tile
#pragma unroll
  for (int i = 0; i < sums.softmax.kOwn; ++i) {
    const float sum = SumOfLanes(sums.softmax.sum[i]);
    if (LaneId() == 0) {
      results.sums[sums.softmax.HeadOf(i)] = make_float2(sums.softmax.max[i], sum);
    }
  }
  sums.values.Store(results.kStride, results.values);
}

// CTAs that registers are shared out among: sm_80 has shared memory for one alone, and for none of many heads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class Config>
inline constexpr int kRegisterShares = 1;
template <class Config>
inline constexpr bool kRuns = Config::kBytes <= 163 << 10;
#else
template <class Config>
inline constexpr int kRegisterShares = Config::kResidents;
template <class Config>
inline constexpr bool kRuns = true;
#endif

// Adds what the rows of the CTA's share give.
template <class Config>
__device__ void AttendShare(const SparseMla& call, const LatentTiles& tiles,
                            const TilesShared<Config>& shared, TileSums<Config>& sums) {
  const TileShare share = ShareOf<Config::Work::kHeads>(call, tiles);
  SeenRows seen = RowsOfToken(call, share.token);
  const Places places = SplitOf(seen, tiles.splits, share.partial * tiles.cluster + share.rank);
  seen.begin = places.begin;
  seen.count = places.end;
  if (seen.begin < seen.count) AttendTiles<Config>(call, seen, share.head, shared, sums);
}

template <class Config>
__global__ void __launch_bounds__(Config::Work::kThreads, kRegisterShares<Config>)
    LatentTilesKernel(const __grid_constant__ SparseMla call,
                      const __grid_constant__ SinkResults results, const LatentTiles tiles) {
  constexpr int kHeads = Config::Work::kHeads;
  if constexpr (kRuns<Config>) {
    extern __shared__ float4 latent_tiles[];
    const TilesShared<Config> shared = {reinterpret_cast<uint8_t*>(latent_tiles)};
    TileSums<Config> sums;
    sums.softmax.Clear();
    sums.values.Clear();
    ptx::LetNextKernelBegin();
    ptx::WaitForKernelBefore();
    if (blockIdx.x == 0 && call.is_dense) CheckStarts(call);
    AttendShare<Config>(call, tiles, shared, sums);
    const auto found = Config::Results::At(shared.base);
    LeaveSums<Config>(sums, found);
    ptx::WaitForCluster();
    StoreResults<kHeads, Config::Work::kThreads>(results, ShareOf<kHeads>(call, tiles), found);
  }
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
  const LaunchShape launch = {dim3(static_cast<unsigned>(ctas)), dim3(Config::Work::kThreads),
                              Config::kBytes};
  return LaunchClusters(kernel, launch, tiles.cluster, stream, call, results, tiles);
}

// The instance of a format's rows that a call takes.
template <class Rows>
Error LaunchRowsOf(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                   Stream stream) {
  if (tiles.exact) return LaunchTilesOf<TilesConfig<Rows, 1, true>>(call, results, tiles, stream);
  switch (tiles.head_tiles) {
    case 1:
      return LaunchTilesOf<TilesConfig<Rows, 1, false>>(call, results, tiles, stream);
    case 2:
      return LaunchTilesOf<TilesConfig<Rows, 2, false>>(call, results, tiles, stream);
    default:
      return LaunchTilesOf<TilesConfig<Rows, 4, false>>(call, results, tiles, stream);
  }
}

}  // namespace pagefuse::cuda::latent
