// SPDX-License-Identifier: Apache-2.0
// Products of many rows of bfloat16 with bfloat16 weights in rows, by tensor cores: a tile of y a block, operands in a
// ring of stages in shared memory. Every size of tile makes the sums of y in the same order. Device code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

inline constexpr int kDepth = 32;                // elements along K in a stage
inline constexpr int kPieces = kDepth * 2 / 16;  // of 16 bytes, of a row of a stage

// A tile of rows by columns, shared by warps of warp_rows by warp_columns each (of each matrix).
template <int kRowsOf, int kColumnsOf, int kWarpRowsOf, int kWarpColumnsOf, int kMatricesOf,
          int kStagesOf>
struct TileShape {
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf, kMatrices = kMatricesOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kWarpRows = kWarpRowsOf, kWarpColumns = kWarpColumnsOf;
  static constexpr int kWarpsDown = kRows / kWarpRows, kWarpsAcross = kColumns / kWarpColumns;
  static constexpr int kThreads = kWarpsDown * kWarpsAcross * 32;
  static constexpr int kStageRows = kRows + kMatrices * kColumns;
  static constexpr int kSharedBytes = kStages * kStageRows * kDepth * 2;
};

struct Bf16TileCall {
  int64_t m = 0, n = 0, k = 0;
  const Bfloat* x = nullptr;
  const Bfloat* weight = nullptr;
  const Bfloat* up = nullptr;
  // Parts along K, of as many steps each, that blocks of their own add up: [part, matrix, m, n]. Null: one part.
  float* partials = nullptr;
  int part_steps = 0;
  Epilogue epilogue;
};

// Where a piece of a row of a stage lies: rows two apart have theirs in other banks.
constexpr int PieceOf(int row, int piece) { return row * kPieces + (piece ^ (row / 2 % kPieces)); }

// Rows [first, first + kCount) of a matrix [rows, k], from column k0 on, to `to`; zeros where there are none.
template <int kCount, int kThreads>
__device__ void CopyRows(const Bfloat* from, int64_t first, int64_t rows, int64_t k0, int64_t k,
                         uint4* to) {
#pragma unroll
  for (int i = 0; i < kCount * kPieces / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = index / kPieces, piece = index % kPieces;
    const int64_t column = k0 + piece * 8;
    const bool there = first + row < rows && column < k;
    const Bfloat* source = there ? from + (first + row) * k + column : from;
    ptx::CopyAsync16(to + PieceOf(row, piece), source, there ? 16 : 0);
  }
}

// X: type of y.
template <typename X, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    Bf16TileKernel(const __grid_constant__ Bf16TileCall call) {
  extern __shared__ __align__(16) unsigned char shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  constexpr int kTilesDown = Shape::kWarpRows / 16, kTilesAcross = Shape::kWarpColumns / 8;
  static_assert(kTilesAcross % 2 == 0);
  constexpr int kThreads = Shape::kThreads;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / Shape::kWarpsAcross * Shape::kWarpRows;
  const int warp_column = warp % Shape::kWarpsAcross * Shape::kWarpColumns;
  const int64_t row0 = int64_t{blockIdx.x} * Shape::kRows;
  const int64_t column0 = int64_t{blockIdx.y} * Shape::kColumns;
  constexpr int kStages = Shape::kStages;
  const auto stage = [&](int i) {
    return reinterpret_cast<uint4*>(shared) + i % kStages * Shape::kStageRows * kPieces;
  };
  const int first = static_cast<int>(blockIdx.z) * call.part_steps;
  const int end = min(first + call.part_steps, static_cast<int>(CeilDiv(call.k, kDepth)));
  const auto fetch = [&](int i) {
    if (i < end) {
      uint4* to = stage(i);
      CopyRows<Shape::kRows, kThreads>(call.x, row0, call.m, int64_t{i} * kDepth, call.k, to);
      to += Shape::kRows * kPieces;
      CopyRows<Shape::kColumns, kThreads>(call.weight, column0, call.n, int64_t{i} * kDepth, call.k,
                                          to);
      to += Shape::kColumns * kPieces;
      if constexpr (Shape::kMatrices == 2) {
        CopyRows<Shape::kColumns, kThreads>(call.up, column0, call.n, int64_t{i} * kDepth, call.k,
                                            to);
      }
    }
    ptx::CommitCopies();
  };
  float sums[Shape::kMatrices][kTilesDown][kTilesAcross][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(first + i);
  for (int i = first; i < end; ++i) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();
    fetch(i + kStages - 1);  // to the stage that all have left
    const uint4* x = stage(i);
    const uint4* w = x + Shape::kRows * kPieces;
#pragma unroll
    for (int half = 0; half < kDepth / 16; ++half) {
      uint32_t a[kTilesDown][4];
#pragma unroll
      for (int r = 0; r < kTilesDown; ++r) {
        const int row = warp_row + r * 16 + lane % 16;
        ptx::LoadMatrices(x + PieceOf(row, half * 2 + lane / 16), a[r]);
      }
#pragma unroll
      for (int j = 0; j < Shape::kMatrices; ++j) {
#pragma unroll
        for (int c = 0; c < kTilesAcross; c += 2) {
          uint32_t b[4];
          const int row = j * Shape::kColumns + warp_column + c * 8 + lane % 8 + lane / 16 * 8;
          ptx::LoadMatrices(w + PieceOf(row, half * 2 + lane / 8 % 2), b);
#pragma unroll
          for (int r = 0; r < kTilesDown; ++r) {
            ptx::MmaBf16(sums[j][r][c], a[r], b[0], b[1]);
            ptx::MmaBf16(sums[j][r][c + 1], a[r], b[2], b[3]);
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
        const int64_t row = row0 + warp_row + r * 16 + lane / 4 + i / 2 * 8;
        const int64_t column = column0 + warp_column + c * 8 + lane % 4 * 2 + i % 2;
        if (row >= call.m || column >= call.n) continue;
        if (call.partials != nullptr) {
#pragma unroll
          for (int j = 0; j < Shape::kMatrices; ++j) {
            const int64_t matrix = int64_t{blockIdx.z} * Shape::kMatrices + j;
            call.partials[(matrix * call.m + row) * call.n + column] = sums[j][r][c][i];
          }
          continue;
        }
        if constexpr (Shape::kMatrices == 2) {
          call.epilogue.WriteGated<X>(row, column, sums[0][r][c][i], sums[1][r][c][i]);
        } else {
          call.epilogue.Write<X>(row, column, sums[0][r][c][i]);
        }
      }
    }
  }
}

inline constexpr int kJoinThreads = 256;

// Adds the parts up, in order.
template <typename X, int kMatrices>
__global__ void __launch_bounds__(kJoinThreads)
    JoinPartsKernel(const float* partials, int parts, int64_t m,
                    const __grid_constant__ Epilogue epilogue) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t at = int64_t{blockIdx.x} * kJoinThreads + threadIdx.x, size = m * epilogue.n;
  if (at >= size) return;
  float sums[kMatrices] = {};
  for (int i = 0; i < parts; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) sums[j] += partials[(i * kMatrices + j) * size + at];
  }
  if constexpr (kMatrices == 2) {
    epilogue.WriteGated<X>(at / epilogue.n, at % epilogue.n, sums[0], sums[1]);
  } else {
    epilogue.Write<X>(at / epilogue.n, at % epilogue.n, sums[0]);
  }
}

template <typename X, typename Shape>
Error LaunchBf16Tiles(const ProductParams& params, const TileBf16Plan& plan, const Bfloat* x,
                      Stream stream) {
  static_assert(Shape::kSharedBytes <= 48 << 10);
  Bf16TileCall call{.m = params.m,
                    .n = params.n,
                    .k = params.k,
                    .x = x,
                    .weight = static_cast<const Bfloat*>(params.weight.data),
                    .up = static_cast<const Bfloat*>(params.up.data)};
  call.epilogue = Epilogue::Of(params);
  call.part_steps = plan.part_steps;
  if (plan.parts > 1) {
    call.partials = reinterpret_cast<float*>(static_cast<char*>(params.scratch) + plan.x_bytes);
  }
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.m, Shape::kRows)),
                                       static_cast<unsigned>(CeilDiv(params.n, Shape::kColumns)),
                                       static_cast<unsigned>(plan.parts)),
                          .block = Shape::kThreads,
                          .shared_bytes = Shape::kSharedBytes};
  const Error error = Launch(Bf16TileKernel<X, Shape>, shape, stream, call);
  if (error != 0 || plan.parts == 1) return error;
  const LaunchShape join{.grid = static_cast<unsigned>(CeilDiv(params.m * params.n, kJoinThreads)),
                         .block = kJoinThreads};
  return Launch(JoinPartsKernel<X, Shape::kMatrices>, join, stream, call.partials, plan.parts,
                params.m, call.epilogue);
}

template <typename X, int kMatrices>
Error LaunchBf16TilesOf(const ProductParams& params, const TileBf16Plan& plan, const Bfloat* x,
                        Stream stream) {
  using Large = TileShape<128, 128 / kMatrices, 64, 32 / kMatrices, kMatrices, 3>;
  using Middle = TileShape<64, 64 / kMatrices, 32, 32 / kMatrices, kMatrices, 6>;
  using Low = TileShape<32, 64 / kMatrices, 32 / kMatrices, 16, kMatrices, 8>;
  switch (plan.rows) {
    case 128:
      return LaunchBf16Tiles<X, Large>(params, plan, x, stream);
    case 64:
      return LaunchBf16Tiles<X, Middle>(params, plan, x, stream);
    default:
      return LaunchBf16Tiles<X, Low>(params, plan, x, stream);
  }
}

}  // namespace pagefuse::cuda
