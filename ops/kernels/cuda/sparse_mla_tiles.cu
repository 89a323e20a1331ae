// SPDX-License-Identifier: Apache-2.0
// Which calls of SparseMlaAttention tiles take, and how they are cut.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles.h"

namespace pagefuse::cuda {
namespace {

// Of the instance that needs most, but for that of most heads.
constexpr int kTilesBytes = 160 << 10;

LatentTilesFormat FormatOf(const SparseMla& call) {
  using enum LatentTilesFormat;
  if (call.value_size != kLatentValues) return kNone;
  if (!call.plain) {
    if (call.grouped == Fp8DsMlaRow()) return kDsMla;
    return call.grouped == Fp8Ue8m0Row() ? kUe8m0 : kNone;
  }
  if (call.element != DataType::kBfloat16) return kNone;
  if (call.head_size == 576) return kBfloat16Of576;
  return call.head_size == 512 ? kBfloat16Of512 : kNone;
}

// Whether rows can be copied in pieces of 16 bytes, and scales beside them in such of four.
bool ComesInPieces(const CacheRows& rows) {
  const int64_t steps = rows.data_strides.block | rows.data_strides.row;
  if (!IsAligned(rows.data, 16) || steps % 16 != 0) return false;
  const int64_t scale_steps = rows.scale_strides.block | rows.scale_strides.row;
  return IsAligned(rows.scales, 4) && scale_steps % 4 == 0;
}

bool IsAlignedCall(const SparseMla& call) {
  for (int i = 0; i < call.num_lists; ++i) {
    if (!ComesInPieces(call.lists[i].rows)) return false;
  }
  return IsAligned(call.q, 16) && IsAligned(call.out, 16);
}

// Tiles of heads of a CTA. More of them take each row once; one alone takes the least time where few tokens have few rows, of which a cluster's
// CTA has kFewTiles at most.
int HeadTilesOf(const SparseMla& call) {
  constexpr int64_t kFewTiles = 4;
  const int64_t all = CeilDiv(call.heads, kLatentTileHeads);
  const int64_t tiles = CeilDiv(call.most_rows(), kLatentTileRows);
  const int64_t slots = int64_t{Multiprocessors()} * LatentResidents(false, 1);
  const int blocks = std::min(MostClusterBlocks(), kMostLatentCluster);
  const bool few = call.tokens * all * blocks <= slots && tiles <= kFewTiles * blocks;
  if (all == 1 || (blocks > 1 && few)) return 1;
  return all == 2 || MostShared() < kLatentManyHeadsBytes ? 2 : 4;
}

// Splits that a launch more joins, or those of a cluster, which joins them itself: by the time that both take, in tiles.
void Cut(const SparseMla& call, LatentTiles& tiles) {
  constexpr int64_t kJoinLaunch = 4, kJoinCluster = 1;
  const int residents = LatentResidents(tiles.exact, tiles.head_tiles);
  SplitWork work = {.ctas = call.tokens * tiles.head_groups,
                    .tiles = CeilDiv(call.most_rows(), kLatentTileRows),
                    .slots = int64_t{Multiprocessors()} * residents};
  tiles.splits = SplitsOf(work);
  int64_t least = CostOfSplits(work, tiles.splits) + (tiles.splits > 1 ? kJoinLaunch : 0);
  // Many CTAs of few heads, which memory bounds, lose more to waiting for each other than a launch takes.
  if (tiles.head_tiles == 1 && work.ctas * kMostLatentCluster > Multiprocessors()) return;
  // Clusters are whole within parts of the device.
  work.slots = int64_t{Multiprocessors() / kMostLatentCluster * kMostLatentCluster} * residents;
  for (int cluster = 2; cluster <= std::min(MostClusterBlocks(), kMostLatentCluster);
       cluster *= 2) {
    const int64_t cost = CostOfSplits(work, cluster) + kJoinCluster;
    if (cost >= least) continue;
    least = cost;
    tiles.splits = tiles.cluster = cluster;
  }
}

}  // namespace

LatentTiles LatentTilesOf(const SparseMla& call) {
  LatentTiles tiles;
  if (!IsAlignedCall(call) || MostShared() < kTilesBytes) return tiles;
  tiles.format = FormatOf(call);
  tiles.exact = call.query_type != DataType::kBfloat16;
  tiles.head_tiles = tiles.exact ? 1 : HeadTilesOf(call);
  tiles.head_groups = static_cast<int>(CeilDiv(call.heads, tiles.head_tiles * kLatentTileHeads));
  Cut(call, tiles);
  return tiles;
}

Error LaunchLatentTiles(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream) {
  switch (tiles.format) {
    case LatentTilesFormat::kDsMla:
      return LaunchLatentDsMla(call, results, tiles, stream);
    case LatentTilesFormat::kUe8m0:
      return LaunchLatentUe8m0(call, results, tiles, stream);
    default:
      return LaunchLatentBf16(call, results, tiles, stream);
  }
}

}  // namespace pagefuse::cuda
