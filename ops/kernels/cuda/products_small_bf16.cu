// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "pagefuse/ops/kernels/cuda/row_bf16.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/cuda/small_tiles_bf16.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {
namespace {

constexpr int64_t kMostRows = 64;
constexpr int64_t kMostColumns = int64_t{1} << 30;   // numbers of groups and pieces are int
constexpr int64_t kMostElements = int64_t{1} << 24;  // of a row

const SmallShape& ShapeOf(const ProductParams& params) {
  if (params.m == 1) return RowSums::kShape;
  return *WithTileSums(params.m, [](auto sums) { return &decltype(sums)::type::kShape; });
}

// Rows of 16-byte pieces.
bool SuitsPieces(const ProductWeight& w) {
  return w.type == DataType::kBfloat16 && w.rows && IsAligned(w.data, 16);
}

bool SuitsStack(const ProductParams& params) {
  constexpr int64_t kMost = 65535;  // of a grid
  const SmallStack stack = StackOf(params);
  return stack.products() > 0 && stack.matrices <= kMost && stack.turns <= kMost &&
         (params.batch.empty() || !params.gated());
}

// Where blocks fill multiprocessors.
__global__ void FullBlockKernel() {}

// Clusters of so many such blocks that the device runs at a time: those of a cluster are of one GPC, of which some have
// fewer multiprocessors. 0: it does not tell.
int CountClusters(int parts, int most_shared) {
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (cudaFuncSetAttribute(FullBlockKernel, attribute, most_shared) != cudaSuccess) return 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(parts);
  config.blockDim = 32;
  config.dynamicSmemBytes = static_cast<size_t>(most_shared);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(parts);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  const bool told =
      cudaOccupancyMaxActiveClusters(&clusters, FullBlockKernel, &config) == cudaSuccess;
  return told ? clusters : 0;
}

// The same, asked for once; a guess where the device does not tell.
int64_t MostClusters(int parts, int most_shared) {
  static std::array<DeviceNumber, kMostSmallParts + 1> known;
  const auto count = [&](int) {
    const int clusters = CountClusters(parts, most_shared);
    return clusters != 0 ? clusters : std::max(Multiprocessors() / 16 * 16 / parts, 1);
  };
  return known[static_cast<size_t>(parts)].Get(1, count);
}

struct Planner {
  const ProductParams& params;
  const SmallShape& shape;
  int most_shared;
  int64_t residents;  // blocks of a multiprocessor
  int64_t products = StackOf(params).products();

  int matrices() const { return params.gated() ? 2 : 1; }
  int warps() const { return shape.warps / matrices(); }  // of a matrix

  // Of a product, that run at a time.
  int64_t ClustersOf(int parts) const {
    const int64_t all = parts == 1 ? Multiprocessors() : MostClusters(parts, most_shared);
    return std::max<int64_t>(all * residents / products, 1);
  }

  // As many warps for each group as give a warp the fewest steps. The end of a group counts as one.
  int SplitOf(int64_t groups, int part_steps) const {
    int best = 1;
    int64_t least = INT64_MAX;
    for (int split = 1; split <= warps(); split *= 2) {
      const int64_t steps = CeilDiv(groups * split, warps()) * (CeilDiv(part_steps, split) + 1);
      if (steps < least) least = steps, best = split;
    }
    return best;
  }

  // Gives sums room; false: x leaves none.
  bool PlaceSums(SmallPlan& plan) const {
    const int64_t groups = plan.groups,
                  turn = warps() / plan.split;  // groups that warps sum up beside each other
    const int64_t x_bytes = (shape.ring_pieces() + params.m * plan.x_stride(shape)) * 16;
    const int64_t turn_bytes = 4 * matrices() * turn * plan.split * shape.group_sums();
    plan.direct = shape.direct && !params.gated() && plan.parts == 1 && plan.split == 1;
    plan.in_ring = !plan.direct && groups <= turn && shape.SumsFillRing();
    plan.shared_bytes = x_bytes;
    plan.round_groups = static_cast<int>(plan.direct ? groups : turn);
    if (plan.direct || plan.in_ring) return x_bytes <= most_shared;
    if (x_bytes + turn_bytes > most_shared) return false;
    const int64_t rounds = CeilDiv(groups, (most_shared - x_bytes) / turn_bytes * turn);
    const int64_t turns = CeilDiv(CeilDiv(groups, rounds), turn);
    plan.round_groups = static_cast<int>(turns * turn);
    plan.shared_bytes += turns * turn_bytes;
    return true;
  }

  // No parts: no block has the memory.
  SmallPlan Of(int parts) const {
    SmallPlan plan{.row_pieces = static_cast<int>(params.k / kOwnElements),
                   .most_shared = most_shared};
    const int64_t all_groups = CeilDiv(params.n, shape.columns);
    const int64_t groups = CeilDiv(all_groups, ClustersOf(parts));
    const auto part_steps = static_cast<int>(CeilDiv(CeilDiv(plan.row_pieces, shape.run), parts));
    plan.clusters = static_cast<int>(CeilDiv(all_groups, groups));
    plan.groups = static_cast<int>(groups);
    plan.part_pieces = part_steps * shape.run;
    plan.parts = parts;
    const auto place = [&](int split) {
      plan.split = split;
      plan.steps = static_cast<int>(CeilDiv(part_steps, split));
      return PlaceSums(plan);
    };
    // Sums of warps that share nothing need no room.
    if (!place(SplitOf(groups, part_steps)) && !place(1)) plan.parts = 0;
    return plan;
  }

  // About what a block reads from memory. Other blocks read the same x, from the cache; blocks that share K wait for each
  // other and read each other's sums.
  int64_t Cost(const SmallPlan& plan) const {
    constexpr int64_t kWait = 24 << 10;
    const int64_t k = std::min(plan.part_pieces, plan.row_pieces) * kOwnElements;
    const int64_t columns = int64_t{plan.groups} * shape.columns * matrices();
    const int64_t joined = CeilDiv(plan.groups, plan.round_groups) * kWait + columns * params.m * 4;
    return columns * k * 2 + params.m * k * 2 + (plan.parts > 1 ? joined : 0);
  }
};

}  // namespace

SmallStack StackOf(const ProductParams& params) {
  if (params.batch.empty()) return {};
  const auto axes = StridedAxes<2>(params.batch, {params.x_steps, params.weight_steps}).axes;
  const auto& last = axes.back();
  const SmallStack stack{last.size, axes.size() == 1 ? 1 : axes[0].size};
  const bool in_order = last.size == 1 || (last.strides[0] == 1 && last.strides[1] == 1);
  const bool in_turn = axes.size() == 1 || (axes.size() == 2 && axes[0].strides[0] == last.size &&
                                            axes[0].strides[1] == 0);
  return in_order && in_turn ? stack : SmallStack{.matrices = 0};
}

SmallPlan PlanSmall(const ProductParams& params, const SmallShape& shape) {
  const int64_t least_part = params.m <= 16 ? 256 : 128;  // of K: much of x is worth more blocks
  const int64_t residents = HasLargeWeights(params) ? shape.residents : 1;
  const Planner planner{params, shape, MostShared(), residents};
  SmallPlan best;
  int64_t least = INT64_MAX;
  for (int parts = 1; parts <= std::min(MostClusterBlocks(), kMostSmallParts); parts *= 2) {
    if (parts > 1 && params.k < parts * least_part) break;
    const SmallPlan plan = planner.Of(parts);
    if (plan.parts == 0) continue;
    const int64_t cost = planner.Cost(plan);
    if (cost < least) least = cost, best = plan;
  }
  return best;
}

bool SuitsSmallBf16(const ProductParams& params) {
  return params.m <= kMostRows && !params.x_turned && SuitsStack(params) &&
         params.k % kOwnElements == 0 && params.k > 0 && params.k <= kMostElements &&
         params.n <= kMostColumns && IsAligned(params.x, 16) &&
         (params.type == DataType::kFloat || params.type == DataType::kBfloat16) &&
         SuitsPieces(params.weight) && (!params.gated() || SuitsPieces(params.up)) &&
         PlanSmall(params, ShapeOf(params)).parts > 0;
}

Error LaunchSmallBf16(const ProductParams& params, Stream stream) {
  if (params.gated()) return LaunchSmallGated(params, stream);
  return params.type == DataType::kFloat ? LaunchSmallTiles<float, false>(params, stream)
                                         : LaunchSmallTiles<Bfloat, false>(params, stream);
}

}  // namespace pagefuse::cuda
