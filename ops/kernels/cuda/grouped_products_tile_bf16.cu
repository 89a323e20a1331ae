// SPDX-License-Identifier: Apache-2.0
// Grouped products of bfloat16 with matrices whose rows are columns of y, by tensor cores: a tile of y a block, operands in a ring of stages in
// shared memory. Every size of tile makes the sums of y in the same order.
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"
#include "pagefuse/ops/kernels/cuda/tile_bf16.h"

namespace pagefuse::cuda {
namespace {

// The pieces of 16 bytes of rows of x that a thread copies to each stage.
template <typename Shape>
class OwnPieces {
  static constexpr int kPiecesOfTile = Shape::kRows * kPieces;
  static constexpr int kOwn = (kPiecesOfTile + Shape::kThreads - 1) / Shape::kThreads;

 public:
  __device__ OwnPieces(const GroupedRowsCall& call, const ExpertTile& tile)
      : x_(static_cast<const Bfloat*>(call.x)), k_(call.k) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = Index(i) / kPieces;
      rows_[i] = row < tile.count ? call.order.SourceRowAt(tile, row) : -1;
    }
  }
  // Columns from k0 on; zeros where there are none.
  __device__ void Copy(int64_t k0, uint4* to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = Index(i) / kPieces, piece = Index(i) % kPieces;
      if (row >= Shape::kRows) continue;
      const int64_t column = k0 + piece * 8;
      const bool there = rows_[i] >= 0 && column < k_;
      ptx::CopyAsync16(to + PieceOf(row, piece), there ? x_ + rows_[i] * k_ + column : x_,
                       there ? 16 : 0);
    }
  }

 private:
  __device__ static int Index(int i) { return i * Shape::kThreads + static_cast<int>(threadIdx.x); }
  const Bfloat* x_;
  int64_t k_;
  int rows_[kOwn];  // -1: none
};

// Sums of a warp, as fragments of the tensor cores.
template <typename Shape>
struct WarpSums {
  static constexpr int kDown = Shape::kWarpRows / 16, kAcross = Shape::kWarpColumns / 8;
  static_assert(kAcross % 2 == 0);
  float at[kDown][kAcross][4] = {};

  // A stage of rows of x and of W.
  __device__ void Add(const uint4* x, const uint4* w, int warp_row, int warp_column, int lane) {
#pragma unroll
    for (int half = 0; half < kDepth / 16; ++half) {
      uint32_t a[kDown][4];
#pragma unroll
      for (int r = 0; r < kDown; ++r) {
        ptx::LoadMatrices(x + PieceOf(warp_row + r * 16 + lane % 16, half * 2 + lane / 16), a[r]);
      }
#pragma unroll
      for (int c = 0; c < kAcross; c += 2) {
        uint32_t b[4];
        const int row = warp_column + c * 8 + lane % 8 + lane / 16 * 8;
        ptx::LoadMatrices(w + PieceOf(row, half * 2 + lane / 8 % 2), b);
#pragma unroll
        for (int r = 0; r < kDown; ++r) {
          ptx::MmaBf16(at[r][c], a[r], b[0], b[1]);
          ptx::MmaBf16(at[r][c + 1], a[r], b[2], b[3]);
        }
      }
    }
  }
  // write(row, column, sum) for each, of the tile.
  template <typename F>
  __device__ void ForEach(int warp_row, int warp_column, int lane, const F& write) const {
#pragma unroll
    for (int r = 0; r < kDown; ++r) {
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          write(warp_row + r * 16 + lane / 4 + i / 2 * 8,
                warp_column + c * 8 + lane % 4 * 2 + i % 2, at[r][c][i]);
        }
      }
    }
  }
};

// X: type of y. Blocks that share a tile of rows are neighbours.
template <typename X, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    GroupedBf16TileKernel(const __grid_constant__ GroupedRowsCall call, int column_tiles) {
  extern __shared__ __align__(16) unsigned char shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int number = static_cast<int>(blockIdx.x);
  const ExpertTile tile = call.order.TileAt(number / column_tiles, false);
  if (tile.count == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / Shape::kWarpsAcross * Shape::kWarpRows;
  const int warp_column = warp % Shape::kWarpsAcross * Shape::kWarpColumns;
  const int64_t column0 = int64_t{number % column_tiles} * Shape::kColumns;
  const auto* w = static_cast<const Bfloat*>(call.weights.At(max(tile.expert, 0)).data);
  const OwnPieces<Shape> x(call, tile);
  constexpr int kStages = Shape::kStages;
  const auto stage = [&](int i) {
    return reinterpret_cast<uint4*>(shared) + i % kStages * Shape::kStageRows * kPieces;
  };
  // Of no expert: zeros.
  const int end = tile.expert < 0 ? 0 : static_cast<int>(CeilDiv(call.k, kDepth));
  const auto fetch = [&](int i) {
    if (i < end) {
      x.Copy(int64_t{i} * kDepth, stage(i));
      CopyRows<Shape::kColumns, Shape::kThreads>(w, column0, call.n, int64_t{i} * kDepth, call.k,
                                                 stage(i) + Shape::kRows * kPieces);
    }
    ptx::CommitCopies();
  };
  WarpSums<Shape> sums;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  for (int i = 0; i < end; ++i) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();
    fetch(i + kStages - 1);  // to the stage that all have left
    sums.Add(stage(i), stage(i) + Shape::kRows * kPieces, warp_row, warp_column, lane);
  }
  sums.ForEach(warp_row, warp_column, lane, [&](int row, int column, float sum) {
    const int64_t to = column0 + column;
    if (row >= tile.count || to >= call.n) return;
    static_cast<X*>(call.y)[call.order.RowAt(tile, row) * call.n + to] = FromFloat<X>(sum);
  });
}

template <typename X, typename Shape>
Error LaunchTilesOf(const GroupedRowsCall& call, Stream stream) {
  static_assert(Shape::kSharedBytes <= 48 << 10);
  const int64_t columns = CeilDiv(call.n, Shape::kColumns), blocks = columns * call.tiles;
  if (blocks > INT32_MAX) return kTooLarge;
  const LaunchShape shape{.grid = static_cast<unsigned>(blocks),
                          .block = Shape::kThreads,
                          .shared_bytes = Shape::kSharedBytes};
  return Launch(GroupedBf16TileKernel<X, Shape>, shape, stream, call, static_cast<int>(columns));
}

template <typename X>
Error LaunchOf(const GroupedRowsCall& call, int tile_rows, Stream stream) {
  switch (tile_rows) {
    case 16:
      return LaunchTilesOf<X, TileShape<16, 64, 16, 16, 1, 8>>(call, stream);
    case 64:
      return LaunchTilesOf<X, TileShape<64, 64, 32, 32, 1, 6>>(call, stream);
    default:
      return LaunchTilesOf<X, TileShape<128, 128, 64, 32, 1, 3>>(call, stream);
  }
}

}  // namespace

Error LaunchGroupedBf16Tiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                             int tile_rows, Stream stream) {
  return params.type == DataType::kFloat ? LaunchOf<float>(call, tile_rows, stream)
                                         : LaunchOf<Bfloat>(call, tile_rows, stream);
}

}  // namespace pagefuse::cuda
