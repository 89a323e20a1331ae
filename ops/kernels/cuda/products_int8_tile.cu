// SPDX-License-Identifier: Apache-2.0
// More than 64 rows: a tile of y a block, codes and rounded rows in a ring of stages in shared memory.
#include "pagefuse/ops/kernels/cuda/int8_parts.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 256, kWarpsDown = 4, kWarpsAcross = 2;
constexpr int kStages = 3, kDepth = 2;  // stages, and blocks along K of each
constexpr int kColumns = 64, kWarpColumns = kColumns / kWarpsAcross;
constexpr int kEnoughTiles = 128;  // for all multiprocessors

struct TileInt8Call {
  Int8Call product;
  Epilogue epilogue;
};

// What a stage holds: blocks of rows of x, 32 bytes in two pieces; of rows of codes; units and scales.
template <int kBits, int kMatrices, int kRows>
struct Stage {
  static constexpr int kCodeBytes = kRoundBlock * kBits / 8;
  alignas(16) uint8_t x[kDepth][kRows][kRoundBlock];
  alignas(16) uint8_t codes[kDepth][kMatrices][kColumns][kCodeBytes];
  float units[kDepth][kRows];
  float scales[kDepth][kMatrices][kColumns];
};

// The piece of a row in which half a block lies: rows four apart have theirs in other banks.
constexpr int PieceOf(int row, int half) { return half ^ (row / 4 % 2); }

template <int kBits, int kMatrices, int kRows>
__device__ void Fetch(const Int8Call& p, int64_t row0, int64_t column0, int block0,
                      Stage<kBits, kMatrices, kRows>& to) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kDepth * kRows * 2; i += kThreads) {
    const int half = i % 2, row = i / 2 % kRows, d = i / 2 / kRows;
    const bool there = row0 + row < p.m && block0 + d < p.blocks;
    const int64_t at = there ? (row0 + row) * p.blocks + block0 + d : 0;
    ptx::CopyAsync16(&to.x[d][row][PieceOf(row, half) * 16], p.x + at * kRoundBlock + half * 16,
                     there ? 16 : 0);
    if (half == 0) ptx::CopyAsync4(&to.units[d][row], p.units + at, there ? 4 : 0);
  }
  constexpr int kPieces = kRoundBlock * kBits / 8 / 16;
  const int64_t code_blocks = p.row_bytes * 8 / kBits / kRoundBlock;
  for (int i = thread; i < kDepth * kMatrices * kColumns * kPieces; i += kThreads) {
    const int piece = i % kPieces, column = i / kPieces % kColumns;
    const int matrix = i / kPieces / kColumns % kMatrices, d = i / kPieces / kColumns / kMatrices;
    const Int8Call::Weight& w = matrix == 0 ? p.weight : p.up;
    const bool there = column0 + column < p.n && block0 + d < code_blocks;
    const int64_t n = there ? column0 + column : 0, block = there ? block0 + d : 0;
    ptx::CopyAsync16(&to.codes[d][matrix][column][piece * 16],
                     w.codes + n * p.row_bytes + block * (kRoundBlock * kBits / 8) + piece * 16,
                     there ? 16 : 0);
    if (piece == 0) {
      ptx::CopyAsync4(&to.scales[d][matrix][column],
                      w.scales + n * p.scale_blocks + (block >> p.scale_shift), there ? 4 : 0);
    }
  }
}

template <int kBits, int kMatrices, int kRows>
__global__ void __launch_bounds__(kThreads)
    TileInt8Kernel(const __grid_constant__ TileInt8Call call) {
  using StageOf = Stage<kBits, kMatrices, kRows>;
  constexpr int kWarpRows = kRows / kWarpsDown, kTilesDown = kWarpRows / 16;
  constexpr int kTilesAcross = kWarpColumns / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  StageOf* stages = reinterpret_cast<StageOf*>(shared);
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const Int8Call& p = call.product;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4, t = lane % 4;
  const int warp_row = warp / kWarpsAcross * kWarpRows;
  const int warp_column = warp % kWarpsAcross * kWarpColumns;
  const int64_t row0 = int64_t{blockIdx.x} * kRows, column0 = int64_t{blockIdx.y} * kColumns;
  const int steps = (p.blocks + kDepth - 1) / kDepth;
  const auto fetch = [&](int step) {
    if (step < steps) Fetch(p, row0, column0, step * kDepth, stages[step % kStages]);
    ptx::CommitCopies();
  };
  float sums[kMatrices][kTilesDown][kTilesAcross][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  for (int step = 0; step < steps; ++step) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);  // to the stage that all have left
    const StageOf& stage = stages[step % kStages];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      uint32_t a[kTilesDown][4];
      float units[kTilesDown][2];
#pragma unroll
      for (int r = 0; r < kTilesDown; ++r) {
        const int row = warp_row + r * 16 + lane % 16;
        ptx::LoadMatrices(&stage.x[d][row][PieceOf(row, lane / 16) * 16], a[r]);
        units[r][0] = stage.units[d][warp_row + r * 16 + group];
        units[r][1] = stage.units[d][warp_row + r * 16 + group + 8];
      }
#pragma unroll
      for (int j = 0; j < kMatrices; ++j) {
        const Int8Call::Weight& w = j == 0 ? p.weight : p.up;
#pragma unroll
        for (int c = 0; c < kTilesAcross; ++c) {
          const int column = warp_column + c * 8;
          const auto* words = reinterpret_cast<const uint32_t*>(stage.codes[d][j][column + group]);
          uint32_t zero = 0x08080808u;
          if (kBits == 4 && w.zero_codes != nullptr) {
            const int64_t n = min(column0 + column + group, p.n - 1);
            const int block = min(step * kDepth + d, p.blocks - 1);
            zero = ZeroBytes(w.zero_codes + n * p.zero_row_bytes, block >> p.scale_shift);
          }
          const int first = kBits == 4 ? t : FirstWord(t);
          uint32_t b0, b1;
          UnpackCodes<kBits>(words[first], kBits == 4 ? 0u : words[first + 1], zero, b0, b1);
          const float left = stage.scales[d][j][column + t * 2];
          const float right = stage.scales[d][j][column + t * 2 + 1];
#pragma unroll
          for (int r = 0; r < kTilesDown; ++r) {
            int32_t based[4] = {kSumBase, kSumBase, kSumBase, kSumBase};
            ptx::MmaInt8(based, a[r], b0, b1);
            float(&own)[4] = sums[j][r][c];
            own[0] += units[r][0] * (left * SumOf(based[0]));
            own[1] += units[r][0] * (right * SumOf(based[1]));
            own[2] += units[r][1] * (left * SumOf(based[2]));
            own[3] += units[r][1] * (right * SumOf(based[3]));
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTilesDown; ++r) {
#pragma unroll
    for (int c = 0; c < kTilesAcross; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row0 + warp_row + r * 16 + group + i / 2 * 8;
        const int64_t column = column0 + warp_column + c * 8 + t * 2 + i % 2;
        if (row >= p.m || column >= p.n) continue;
        if constexpr (kMatrices == 2) {
          call.epilogue.WriteGated<float>(row, column, sums[0][r][c][i], sums[1][r][c][i]);
        } else {
          call.epilogue.Write<float>(row, column, sums[0][r][c][i]);
        }
      }
    }
  }
}

template <int kBits, int kMatrices, int kRows>
Error LaunchOf(const Int8Call& product, const ProductParams& params, Stream stream) {
  constexpr size_t kShared = kStages * sizeof(Stage<kBits, kMatrices, kRows>);
  static_assert(kShared <= 48 << 10);
  const TileInt8Call call{product, Epilogue::Of(params)};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.m, kRows)),
                                       static_cast<unsigned>(CeilDiv(params.n, kColumns))),
                          .block = kThreads,
                          .shared_bytes = kShared};
  return Launch(TileInt8Kernel<kBits, kMatrices, kRows>, shape, stream, call);
}

// The sums of y are made in the same order whatever the tile is.
template <int kBits, int kMatrices>
Error LaunchBits(const Int8Call& call, const ProductParams& params, Stream stream) {
  // Two matrices of bytes leave no room for more rows.
  if constexpr (kBits == 4 || kMatrices == 1) {
    const int64_t tiles = CeilDiv(params.m, 128) * CeilDiv(params.n, kColumns);
    if (tiles >= kEnoughTiles) return LaunchOf<kBits, kMatrices, 128>(call, params, stream);
  }
  return LaunchOf<kBits, kMatrices, 64>(call, params, stream);
}

}  // namespace

Error LaunchInt8Tiles(const Int8Call& call, const ProductParams& params, Stream stream) {
  if (params.weight.bits == 4) {
    return params.gated() ? LaunchBits<4, 2>(call, params, stream)
                          : LaunchBits<4, 1>(call, params, stream);
  }
  return params.gated() ? LaunchBits<8, 2>(call, params, stream)
                        : LaunchBits<8, 1>(call, params, stream);
}

}  // namespace pagefuse::cuda
