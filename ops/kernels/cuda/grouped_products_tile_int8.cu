// SPDX-License-Identifier: Apache-2.0
// Grouped products of codes with rows that are rounded to int8, by tensor cores: a tile of y a block. Rows of x lie in a ring of stages in shared
// memory; codes go to registers straight away, a step ahead, as no two warps of a block have the same.
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kRows = kInt8ManyRows, kDown = kRows / 16;  // of a tile, and what a warp has of them
constexpr int kAcross = 2, kColumns = kWarps * kAcross * 8;  // tiles of 8 columns of a warp
constexpr int kBlocks = 2;                                   // of a row of x in a stage
constexpr int kPieces = kBlocks * kRoundBlock / 16;          // of 16 bytes
constexpr int kStages = 4;

struct Stage {
  uint4 x[kRows][kPieces];
  float units[kRows][kBlocks];
};

// Where a piece of a row lies: rows two apart have theirs in other banks.
constexpr int PlaceOf(int row, int piece) { return piece ^ (row / 2 % kPieces); }

// Copies this thread's piece of some rows of x to stages, and some threads their units.
class StagedRows {
  static constexpr int kOwn = kRows * kPieces / kThreads;

 public:
  __device__ StagedRows(const GroupedRowsCall& call, const ExpertTile& tile, int blocks)
      : x_(static_cast<const uint4*>(call.x)), units_(call.units), blocks_(blocks) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sources_[i] = Row(i) < tile.count ? call.order.SourceRowAt(tile, Row(i)) : -1;
    }
  }
  // Blocks from block0 on; zeros where there are none.
  __device__ void Copy(int block0, Stage& to) const {
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t first = int64_t{max(sources_[i], 0)} * blocks_ + block0;
      const bool there = sources_[i] >= 0 && block0 + piece / 2 < blocks_;
      ptx::CopyAsync16(&to.x[Row(i)][PlaceOf(Row(i), piece)], there ? x_ + first * 2 + piece : x_,
                       there ? 16 : 0);
      if (piece >= kBlocks) continue;
      const bool has_unit = sources_[i] >= 0 && block0 + piece < blocks_;
      ptx::CopyAsync4(&to.units[Row(i)][piece], has_unit ? units_ + first + piece : units_,
                      has_unit ? 4 : 0);
    }
  }

 private:
  __device__ static int Row(int i) {
    return (i * kThreads + static_cast<int>(threadIdx.x)) / kPieces;
  }
  const uint4* x_;
  const float* units_;
  int blocks_, sources_[kOwn];  // -1: none
};

// What a lane has of a row of codes of each tile of columns, for the blocks of a stage: its words, and their scales.
template <int kBits>
struct LaneCodes {
  uint32_t words[kBlocks][kAcross][kBits / 4];
  float scales[kBlocks][kAcross];
};

// Where they are.
template <int kBits>
class CodeRows {
 public:
  __device__ CodeRows(const WeightView& w, int64_t column0, int64_t n, int lane)
      : block_shift_(w.block_shift) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      const int64_t column = min(column0 + j * 8 + lane / 4, n - 1);
      const auto* row = static_cast<const uint8_t*>(w.data) + column * w.row_bytes;
      words_[j] = reinterpret_cast<const uint32_t*>(row);
      words_[j] += kBits == 4 ? lane % 4 : FirstWord(lane % 4);
      scales_[j] = static_cast<const float*>(w.scales) + column * w.blocks;
    }
  }
  // Zeros where there is no block.
  __device__ void Load(int block0, int blocks, LaneCodes<kBits>& to) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int block = block0 + b;
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const uint32_t* from = words_[j] + block * kBits;  // a block has a word a bit
#pragma unroll
        for (int i = 0; i < kBits / 4; ++i) to.words[b][j][i] = block < blocks ? from[i] : 0;
        const int scale = block * kRoundBlock >> block_shift_;
        to.scales[b][j] = block < blocks ? scales_[j][scale] : 0.0f;
      }
    }
  }

 private:
  const uint32_t* words_[kAcross];
  const float* scales_[kAcross];
  int block_shift_;
};

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    GroupedInt8TileKernel(const __grid_constant__ GroupedRowsCall call, int column_tiles) {
  __shared__ Stage stages[kStages];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int number = static_cast<int>(blockIdx.x);
  const ExpertTile tile = call.order.TileAt(number / column_tiles, false);
  if (tile.count == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t column0 = int64_t{number % column_tiles} * kColumns + warp * kAcross * 8;
  const WeightView w = call.weights.At(max(tile.expert, 0));
  // Of no expert: zeros.
  const int blocks = tile.expert < 0 ? 0 : static_cast<int>(CeilDiv(call.k, kRoundBlock));
  const int steps = (blocks + kBlocks - 1) / kBlocks;
  const StagedRows x(call, tile, blocks);
  const auto fetch = [&](int step) {
    if (step < steps) x.Copy(step * kBlocks, stages[step % kStages]);
    ptx::CommitCopies();
  };
  float sums[kDown][kAcross][4] = {};
  const CodeRows<kBits> rows(w, column0, call.n, lane);
  LaneCodes<kBits> next;
  rows.Load(0, blocks, next);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const LaneCodes<kBits> codes = next;
    rows.Load((step + 1) * kBlocks, blocks, next);
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);  // to the stage that all have left
    const Stage& stage = stages[step % kStages];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      uint32_t operand[kAcross][2];
      float scales[kAcross][2];  // of the columns of this lane's sums
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const auto& words = codes.words[b][j];
        UnpackCodes<kBits>(words[0], words[kBits / 4 - 1], 0x08080808u, operand[j][0],
                           operand[j][1]);
        scales[j][0] = __shfl_sync(0xFFFFFFFFu, codes.scales[b][j], lane % 4 * 8);
        scales[j][1] = __shfl_sync(0xFFFFFFFFu, codes.scales[b][j], lane % 4 * 8 + 4);
      }
#pragma unroll
      for (int r = 0; r < kDown; ++r) {
        const int row = r * 16 + lane % 16;
        uint32_t a[4];
        ptx::LoadMatrices(&stage.x[row][PlaceOf(row, 2 * b + lane / 16)], a);
        const float upper = stage.units[r * 16 + lane / 4][b];
        const float lower = stage.units[r * 16 + lane / 4 + 8][b];
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          int32_t based[4] = {kSumBase, kSumBase, kSumBase, kSumBase};
          ptx::MmaInt8(based, a, operand[j][0], operand[j][1]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[r][j][i] += (i < 2 ? upper : lower) * (scales[j][i % 2] * SumOf(based[i]));
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kDown; ++r) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = r * 16 + lane / 4 + i / 2 * 8;
        const int64_t column = column0 + j * 8 + lane % 4 * 2 + i % 2;
        if (row >= tile.count || column >= call.n) continue;
        static_cast<float*>(call.y)[call.order.RowAt(tile, row) * call.n + column] = sums[r][j][i];
      }
    }
  }
}

}  // namespace

Error LaunchGroupedInt8Tiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                             Stream stream) {
  const int64_t columns = CeilDiv(call.n, kColumns), blocks = columns * call.tiles;
  if (blocks > INT32_MAX) return kTooLarge;
  const LaunchShape shape{.grid = static_cast<unsigned>(blocks), .block = kThreads};
  return Launch(params.weight.bits == 4 ? GroupedInt8TileKernel<4> : GroupedInt8TileKernel<8>,
                shape, stream, call, static_cast<int>(columns));
}

}  // namespace pagefuse::cuda
