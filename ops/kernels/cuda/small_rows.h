// SPDX-License-Identifier: Apache-2.0
// Products of up to 8 rows with weights in rows, of numbers or codes, in float. A row of W is one warp's, or four
// share a long one. Many products with numbers may be one launch. Device code alone.
#pragma once

#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {

inline constexpr int kRowWarps = 8;
inline constexpr int64_t kLongRow = 2048;  // elements from which on four warps share a row
inline constexpr int kMostSmallRows = 8, kManySmallRows = 4;

struct RowsCall {
  int64_t n = 0, k = 0;
  int m = 0;
  int sharing = 1;  // warps of a row
  bool constant_weights = false, x_aligned = false;
  const void* x = nullptr;
  WeightView weight, up;
  Epilogue epilogue;
  Strided<2> batch;    // matrices of x and W by product
  uint32_t first = 0;  // product of the launch
};

// How a lane reads W: pieces of neighbours, `Piece` at once.
template <typename T>
struct NumberPieces {
  using Piece = uint4;
  static constexpr int kCount = 16 / sizeof(T), kLoads = 8;
  __device__ static const Piece* RowAt(const WeightView& w, int64_t n) {
    return reinterpret_cast<const Piece*>(static_cast<const T*>(w.data) + n * w.n_step);
  }
  __device__ static void Decode(const WeightView&, int64_t, int64_t, const Piece& piece,
                                float (&numbers)[kCount], float& scale) {
    const auto elements = *reinterpret_cast<const Vector<T, kCount>*>(&piece);
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = ToFloat(elements.at[i]);
    scale = 1.0f;
  }
};

// Codes of kBits in words of 4 bytes, which lie in one block. A code in the low bits of 2^23 is an exact float.
template <typename T, int kBits>
struct CodePieces {
  using Piece = uint32_t;
  static constexpr int kCount = 32 / kBits, kLoads = 16;
  __device__ static const Piece* RowAt(const WeightView& w, int64_t n) {
    return reinterpret_cast<const Piece*>(static_cast<const uint8_t*>(w.data) + n * w.row_bytes);
  }
  __device__ static void Decode(const WeightView& w, int64_t k, int64_t n, const Piece& piece,
                                float (&numbers)[kCount], float& scale) {
    constexpr float kBase = 8388608.0f;
    const int64_t block = k >> w.block_shift;
    const float zero = ZeroPoint<T>(w, block, n);
    scale = ToFloat(static_cast<const T*>(w.scales)[n * w.blocks + block]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t code = (piece >> (i * kBits)) & ((1u << kBits) - 1);
      numbers[i] = (__uint_as_float(code | 0x4B000000u) - kBase) - zero;
    }
  }
};

// kCount elements of a row of x from k on; zeros behind its end.
template <typename T, int kCount>
__device__ void LoadX(const T* row, int64_t k, int64_t end, bool aligned, float (&to)[kCount]) {
  constexpr int kWide = 16 / sizeof(T) < kCount ? 16 / sizeof(T) : kCount;
  if (aligned && k + kCount <= end) {
#pragma unroll
    for (int i = 0; i < kCount; i += kWide) {
      const auto part = *reinterpret_cast<const Vector<T, kWide>*>(row + k + i);
#pragma unroll
      for (int e = 0; e < kWide; ++e) to[i + e] = ToFloat(part.at[e]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = k + i < end ? ToFloat(row[k + i]) : 0.0f;
}

// kBatch: many products. kRounds: x is rounded to bfloat16 first.
template <typename T, typename Pieces, bool kGated, bool kBatch, bool kRounds, int kRows>
__global__ void __launch_bounds__(kRowWarps * 32)
    SmallRowsKernel(const __grid_constant__ RowsCall call) {
  constexpr int kMatrices = kGated ? 2 : 1, kCount = Pieces::kCount;
  constexpr int kLoads = Pieces::kLoads / kMatrices;
  using Piece = typename Pieces::Piece;
  __shared__ float sums[kMatrices][kRows][kRowWarps];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int share = warp % call.sharing;
  const int64_t column = int64_t{blockIdx.x} * (kRowWarps / call.sharing) + warp / call.sharing;
  const int64_t n = min(column, call.n - 1);
  const int64_t first = share * 32 + lane, step = 32 * call.sharing;
  const int64_t count = CeilDiv(call.k, kCount);
  const uint32_t product = kBatch ? call.first + blockIdx.z : 0;
  int64_t matrices[2] = {};  // of x and W
  if constexpr (kBatch) call.batch.PlacesOf(product, 2, matrices);
  const int64_t behind = matrices[1] * call.n * count;
  const auto load = [&](int matrix, int64_t piece) {
    const WeightView& w = matrix == 0 ? call.weight : call.up;
    return piece < count ? __ldcs(Pieces::RowAt(w, n) + behind + piece) : Piece{};
  };
  Piece pieces[kLoads][kMatrices];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) pieces[i][j] = load(j, first + i * step);
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const int row0 = static_cast<int>(blockIdx.y) * kRows;
  const T* x = static_cast<const T*>(call.x) + (matrices[0] * call.m + row0) * call.k;
  float own[kMatrices][kRows] = {};
  for (int64_t round = first; round < count; round += kLoads * step) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t piece = round + i * step;
      if (piece >= count) break;
      float numbers[kMatrices][kCount], scale[kMatrices], values[kCount];
#pragma unroll
      for (int j = 0; j < kMatrices; ++j) {
        Pieces::Decode(j == 0 ? call.weight : call.up, piece * kCount, n, pieces[i][j], numbers[j],
                       scale[j]);
        pieces[i][j] = load(j, piece + kLoads * step);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (kRows > 1 && row0 + r >= call.m) break;
        LoadX(x + r * call.k, piece * kCount, call.k, call.x_aligned, values);
        if constexpr (kRounds) {
#pragma unroll
          for (float& value : values) value = ToFloat(FromFloat<Bfloat>(value));
        }
#pragma unroll
        for (int j = 0; j < kMatrices; ++j) {
          float sum = 0;
#pragma unroll
          for (int e = 0; e < kCount; ++e) sum += values[e] * numbers[j][e];
          own[j][r] += scale[j] * sum;
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kMatrices; ++j) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      for (int distance = 16; distance > 0; distance /= 2) {
        own[j][r] += __shfl_xor_sync(0xFFFFFFFFu, own[j][r], distance);
      }
      if (lane == 0) sums[j][r][warp] = own[j][r];
    }
  }
  __syncthreads();
  // One thread for each row and column of the block.
  const int columns = kRowWarps / call.sharing, at = static_cast<int>(threadIdx.x);
  const int row = at / columns, first_warp = at % columns * call.sharing;
  const int64_t to = int64_t{blockIdx.x} * columns + at % columns;
  if (row >= kRows || row0 + row >= call.m || to >= call.n) return;
  float total[kMatrices] = {};
  for (int i = 0; i < call.sharing; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) total[j] += sums[j][row][first_warp + i];
  }
  if constexpr (kGated) {
    call.epilogue.WriteGated<T>(row0 + row, to, total[0], total[1]);
  } else {
    call.epilogue.Write<T>(row0 + row, to, total[0], int64_t{product} * call.m * call.n);
  }
}

// Products that a grid has.
inline constexpr int64_t kMostSmallProducts = 65535;

template <typename T, typename Pieces, bool kGated, bool kBatch = false, bool kRounds = false>
Error LaunchSmallRowsOf(const ProductParams& params, Stream stream) {
  RowsCall call{.n = params.n, .k = params.k, .m = static_cast<int>(params.m)};
  call.sharing = params.k > kLongRow ? 4 : 1;
  call.constant_weights = params.constant_weights;
  call.x_aligned = IsAligned(params.x, 16) && params.k * sizeof(T) % 16 == 0;
  call.x = params.x;
  call.weight = WeightView::Of(params.weight, params.n, params.k);
  call.up = WeightView::Of(params.up, params.n, params.k);
  call.epilogue = Epilogue::Of(params);
  const StridedAxes<2> batch(params.batch, {params.x_steps, params.weight_steps});
  if (kBatch) call.batch = batch.Walked();
  const int rows = params.m == 1 ? 1 : kManySmallRows, columns = kRowWarps / call.sharing;
  auto* const kernel = rows == 1
                           ? SmallRowsKernel<T, Pieces, kGated, kBatch, kRounds, 1>
                           : SmallRowsKernel<T, Pieces, kGated, kBatch, kRounds, kManySmallRows>;
  const int64_t products = batch.size();
  for (int64_t first = 0; first < products; first += kMostSmallProducts) {
    call.first = static_cast<uint32_t>(first);
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(CeilDiv(params.n, columns)),
                     static_cast<unsigned>(CeilDiv(params.m, rows)),
                     static_cast<unsigned>(std::min(products - first, kMostSmallProducts))),
        .block = kRowWarps * 32};
    const Error error = Launch(kernel, shape, stream, call);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace pagefuse::cuda
