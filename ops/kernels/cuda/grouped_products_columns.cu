// SPDX-License-Identifier: Apache-2.0
// Grouped products of a few rows an expert with matrices [K, N].
#include "pagefuse/ops/kernels/cuda/column_sums.h"
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {
namespace {

struct GroupedColumnsCall {
  GroupedRowsCall rows;
  int64_t part = 0;
  int across = 0, parts = 1;
};

// X: type of x and y; where W is another, x is rounded to it.
template <typename X, typename W, int kRows>
__global__ void __launch_bounds__(kColumnThreads, kRows == 1 ? 3 : 2)
    GroupedColumnsKernel(const __grid_constant__ GroupedColumnsCall call) {
  using Sums = ColumnSums<W, 1, kRows, true>;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const GroupedRowsCall& rows = call.rows;
  const int block = static_cast<int>(blockIdx.x) % call.parts;
  const int place = static_cast<int>(blockIdx.x) / call.parts, column_tile = place / rows.tiles;
  const ExpertTile tile =
      rows.order.TileAt(place % rows.tiles, column_tile == 0 && block == 0 && threadIdx.x == 0);
  if (tile.count == 0) return;
  const int64_t column0 = int64_t{column_tile} * call.across * Sums::kCount;
  const int64_t begin = block * call.part;
  // Of no expert: zeros.
  const int64_t end = tile.expert < 0 ? 0 : min(begin + call.part, rows.k);
  const auto* weights = static_cast<const W*>(rows.weights.At(max(tile.expert, 0)).data);
  Sums sums(weights, rows.n, call.across, column0, begin, end);
  const X* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = r < tile.count ? rows.order.SourceRowAt(tile, r) : 0;
    x[r] = static_cast<const X*>(rows.x) + row * rows.k;
  }
  sums.Add(tile.count, [&](int r, int64_t k) {
    const float value = ToFloat(x[r][k]);
    return sizeof(X) == sizeof(W) ? value : ToFloat(FromFloat<W>(value));
  });
  sums.Join();
  for (int at = block * kColumnThreads + static_cast<int>(threadIdx.x); at < sums.sums();
       at += call.parts * kColumnThreads) {
    const int r = at / sums.columns();
    const int64_t column = column0 + at % sums.columns();
    if (r >= tile.count || column >= rows.n) continue;
    static_cast<X*>(rows.y)[rows.order.RowAt(tile, r) * rows.n + column] =
        FromFloat<X>(sums.Total(0, at, call.parts));
  }
  ptx::WaitForCluster();
}

template <typename X, typename W, int kRows>
Error LaunchOf(const GroupedRowsCall& rows, Stream stream) {
  using Sums = ColumnSums<W, 1, kRows, true>;
  const ColumnPlan plan = ColumnPlan::Of(rows.n, rows.k, Sums::kCount, rows.tiles);
  const int64_t blocks = plan.tiles * rows.tiles * plan.parts;
  if (blocks > INT32_MAX || rows.k > kMostColumnRows) return kTooLarge;
  const GroupedColumnsCall call{
      .rows = rows, .part = plan.part, .across = plan.across, .parts = plan.parts};
  const LaunchShape shape{.grid = static_cast<unsigned>(blocks),
                          .block = kColumnThreads,
                          .shared_bytes = Sums::SharedBytes(plan)};
  return LaunchClusters(GroupedColumnsKernel<X, W, kRows>, shape, plan.parts, stream, call);
}

template <typename X, typename W>
Error LaunchOf(const GroupedRowsCall& rows, int tile_rows, Stream stream) {
  return tile_rows == 1 ? LaunchOf<X, W, 1>(rows, stream)
                        : LaunchOf<X, W, kFloatTileRows>(rows, stream);
}

}  // namespace

Error LaunchGroupedColumns(const GroupedProductParams& params, const GroupedRowsCall& call,
                           int tile_rows, Stream stream) {
  if (params.type != params.weight.type) return LaunchOf<float, Bfloat>(call, tile_rows, stream);
  return ForFloatType(
      params.type, [&]<typename T>() -> Error { return LaunchOf<T, T>(call, tile_rows, stream); });
}

}  // namespace pagefuse::cuda
