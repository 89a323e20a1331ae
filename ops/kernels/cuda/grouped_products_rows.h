// SPDX-License-Identifier: Apache-2.0
// Grouped products of a few rows an expert, with matrices whose rows are columns of y: bound by the bandwidth of reading these once. A row of
// W is one warp's, or four share a long one. Device code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/grouped_products_order.h"
#include "pagefuse/ops/kernels/cuda/int8_parts.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/small_rows.h"

namespace pagefuse::cuda {

// Rows of tiles of the kernels for few rows an expert, and of codes under int8 for many.
inline constexpr int kFloatTileRows = 4, kInt8TileRows = 8, kInt8ManyRows = 64;

// The matrices of all experts.
struct WeightStack {
  WeightView first;
  int64_t matrix_bytes = 0, scales_bytes = 0;

  static WeightStack Of(const GroupedProductParams& p) {
    WeightStack stack{.first = WeightView::Of(p.weight, p.n, p.k)};
    if (p.weight.is_codes()) {
      stack.matrix_bytes = p.n * stack.first.row_bytes;
      stack.scales_bytes = p.n * stack.first.blocks * BitWidth(p.type) / 8;
    } else {
      stack.matrix_bytes = p.n * p.k * BitWidth(p.weight.type) / 8;
    }
    return stack;
  }
  __device__ WeightView At(int64_t expert) const {
    WeightView view = first;
    view.data = static_cast<const char*>(view.data) + expert * matrix_bytes;
    if (view.scales != nullptr) {
      view.scales = static_cast<const char*>(view.scales) + expert * scales_bytes;
    }
    view.zero_codes = nullptr;  // there are none, which the compiler should know
    view.zeros = nullptr;
    return view;
  }
};

struct GroupedRowsCall {
  RowOrder order;
  int tiles = 0;
  int64_t n = 0, k = 0;
  int sharing = 1;         // warps of a row of W
  bool x_aligned = false;  // rows of numbers may be loaded in pieces of 16 bytes
  const void* x = nullptr;
  const float* units = nullptr;  // of rows rounded to int8: [M, blocks]
  WeightStack weights;
  void* y = nullptr;
};

// --- how a lane multiplies a piece of a row of W ---
// Source: the rows of x of a tile.

// Floats. kRounds: x is rounded to bfloat16 first.
template <typename X, typename Pieces, bool kRounds>
struct FloatOperand {
  using Piece = typename Pieces::Piece;
  static constexpr int kMostRows = kFloatTileRows;
  // Pieces in registers; more rows need fewer, as they take longer.
  template <int kRows>
  static constexpr int kLoads = kRows == 1 ? Pieces::kLoads : Pieces::kLoads / 2;

  __device__ static int64_t PiecesOf(const GroupedRowsCall& call) {
    return CeilDiv(call.k, Pieces::kCount);
  }
  __device__ static const Piece* RowAt(const WeightView& w, int64_t n) {
    return Pieces::RowAt(w, n);
  }

  template <int kRows>
  struct Source {
    const X* rows[kRows];

    __device__ Source(const GroupedRowsCall& call, const ExpertTile& tile) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = r < tile.count ? call.order.SourceRowAt(tile, r) : 0;
        rows[r] = static_cast<const X*>(call.x) + row * call.k;
      }
    }
    __device__ void Add(const GroupedRowsCall& call, const WeightView& w, int64_t n, int64_t piece,
                        const Piece& loaded, int count, float (&own)[kRows]) const {
      constexpr int kCount = Pieces::kCount;
      float numbers[kCount], values[kCount], scale;
      Pieces::Decode(w, piece * kCount, n, loaded, numbers, scale);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (kRows > 1 && r >= count) break;
        LoadX(rows[r], piece * kCount, call.k, call.x_aligned, values);
        float sum = 0;
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          const float value = kRounds ? ToFloat(FromFloat<Bfloat>(values[e])) : values[e];
          sum += value * numbers[e];
        }
        own[r] += scale * sum;
      }
    }
  };
};

// Codes under rows that are rounded to int8, as int8_parts.h has them. A piece is a block of 4-bit codes, or half one of 8-bit codes.
template <int kBits>
struct Int8Operand {
  using Piece = uint4;
  static constexpr int kMostRows = kInt8TileRows, kPiecesOfBlock = kBits / 4;
  template <int kRows>
  static constexpr int kLoads = 4;
  static constexpr int kWords = kRoundBlock / 4;  // of a block of x

  __device__ static int64_t PiecesOf(const GroupedRowsCall& call) {
    return CeilDiv(call.k, kRoundBlock) * kPiecesOfBlock;
  }
  __device__ static const Piece* RowAt(const WeightView& w, int64_t n) {
    return reinterpret_cast<const Piece*>(static_cast<const uint8_t*>(w.data) + n * w.row_bytes);
  }
  // Where the word of x lies that belongs to code word i of half a block of 8 bits; see RoundedPlace.
  __device__ static int WordOf(int half, int i) { return RoundedPlace(8, 16 * half + 4 * i) / 4; }

  template <int kRows>
  struct Source {
    const uint32_t* rows[kRows];
    const float* units[kRows];

    __device__ Source(const GroupedRowsCall& call, const ExpertTile& tile) {
      const int64_t blocks = CeilDiv(call.k, kRoundBlock);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = r < tile.count ? call.order.SourceRowAt(tile, r) : 0;
        rows[r] = static_cast<const uint32_t*>(call.x) + row * blocks * kWords;
        units[r] = call.units + row * blocks;
      }
    }
    __device__ void Add(const GroupedRowsCall&, const WeightView& w, int64_t n, int64_t piece,
                        const Piece& loaded, int count, float (&own)[kRows]) const {
      constexpr uint32_t kCentre = 0x08080808u;
      const int64_t block = piece / kPiecesOfBlock;
      const int half = static_cast<int>(piece % kPiecesOfBlock);
      const float scale = static_cast<const float*>(
          w.scales)[n * w.blocks + (block * kRoundBlock >> w.block_shift)];
      const uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
      uint32_t codes[kBits == 4 ? 8 : 4];  // as int8, four a word
#pragma unroll
      for (int i = 0; i < 4; i += kBits == 4 ? 1 : 2) {
        if constexpr (kBits == 4) {
          UnpackCodes<4>(words[i], 0, kCentre, codes[i], codes[i + 4]);
        } else {
          UnpackCodes<8>(words[i], words[i + 1], kCentre, codes[i], codes[i + 1]);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (kRows > 1 && r >= count) break;
        const uint32_t* x = rows[r] + block * kWords;
        int sum = 0;
#pragma unroll
        for (int i = 0; i < (kBits == 4 ? 8 : 4); ++i) {
          const uint32_t word = x[kBits == 4 ? i : WordOf(half, i)];
          sum = __dp4a(static_cast<int>(word), static_cast<int>(codes[i]), sum);
        }
        own[r] += units[r][block] * (scale * static_cast<float>(sum));
      }
    }
  };
};

// --- the kernel ---

// X: type of y. A block makes some columns of the rows of a tile, of kRows at most.
template <typename X, typename Operand, int kRows>
__global__ void __launch_bounds__(kRowWarps * 32)
    GroupedRowsKernel(const __grid_constant__ GroupedRowsCall call) {
  constexpr int kLoads = Operand::template kLoads<kRows>;
  __shared__ float sums[kRows][kRowWarps];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column_block = static_cast<int>(blockIdx.x) / call.tiles;
  const ExpertTile tile = call.order.TileAt(static_cast<int>(blockIdx.x) % call.tiles,
                                            column_block == 0 && threadIdx.x == 0);
  if (tile.count == 0) return;
  const int columns = kRowWarps / call.sharing;
  const int64_t column0 = int64_t{column_block} * columns;
  const int64_t n = min(column0 + warp / call.sharing, call.n - 1);
  const WeightView w = call.weights.At(max(tile.expert, 0));
  const auto* pieces = Operand::RowAt(w, n);
  const typename Operand::template Source<kRows> x(call, tile);
  const int64_t end = tile.expert < 0 ? 0 : Operand::PiecesOf(call);  // of none: zeros
  const int64_t step = 32 * call.sharing;
  float own[kRows] = {};
  for (int64_t round = warp % call.sharing * 32 + lane; round < end; round += kLoads * step) {
    typename Operand::Piece loaded[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (round + i * step < end) loaded[i] = __ldcs(pieces + round + i * step);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (round + i * step < end) {
        x.Add(call, w, n, round + i * step, loaded[i], tile.count, own);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int distance = 16; distance > 0; distance /= 2) {
      own[r] += __shfl_xor_sync(0xFFFFFFFFu, own[r], distance);
    }
    if (lane == 0) sums[r][warp] = own[r];
  }
  __syncthreads();
  // One thread for each row and column of the block.
  const int at = static_cast<int>(threadIdx.x), r = at / columns, first_warp = at % columns;
  if (r >= tile.count || column0 + first_warp >= call.n) return;
  float total = 0;
  for (int i = 0; i < call.sharing; ++i) total += sums[r][first_warp * call.sharing + i];
  static_cast<X*>(call.y)[call.order.RowAt(tile, r) * call.n + column0 + first_warp] =
      FromFloat<X>(total);
}

template <typename X, typename Operand>
Error LaunchGroupedRowsOf(GroupedRowsCall call, int tile_rows, Stream stream) {
  call.sharing = call.k > kLongRow ? 4 : 1;
  const int64_t blocks = CeilDiv(call.n, kRowWarps / call.sharing) * call.tiles;
  if (blocks > INT32_MAX) return kTooLarge;
  const LaunchShape shape{.grid = static_cast<unsigned>(blocks), .block = kRowWarps * 32};
  return tile_rows == 1
             ? Launch(GroupedRowsKernel<X, Operand, 1>, shape, stream, call)
             : Launch(GroupedRowsKernel<X, Operand, Operand::kMostRows>, shape, stream, call);
}

// --- what LaunchGroupedProduct chooses among; rows of tiles are 1, or what the kernel has ---

// Few rows an expert. Matrices [N, K], of numbers, codes in float, codes under int8.
Error LaunchGroupedNumbers(const GroupedProductParams& params, const GroupedRowsCall& call,
                           int tile_rows, Stream stream);
Error LaunchGroupedCodes(const GroupedProductParams& params, const GroupedRowsCall& call,
                         int tile_rows, Stream stream);
Error LaunchGroupedInt8(const GroupedProductParams& params, const GroupedRowsCall& call,
                        int tile_rows, Stream stream);
// Matrices [K, N].
Error LaunchGroupedColumns(const GroupedProductParams& params, const GroupedRowsCall& call,
                           int tile_rows, Stream stream);
// Any number of rows, in tiles of 16, 64 and 128. x is of bfloat16.
Error LaunchGroupedBf16Tiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                             int tile_rows, Stream stream);
// In tiles of kInt8ManyRows rows, which are rounded.
Error LaunchGroupedInt8Tiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                             Stream stream);
// In tiles of kTile rows.
Error LaunchGroupedTiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                         Stream stream);

}  // namespace pagefuse::cuda
