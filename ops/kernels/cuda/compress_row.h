// SPDX-License-Identifier: Apache-2.0
// The rows that CompressCacheInsert makes of summed windows. Device code: for .cu files.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/compress_window.h"
#include "pagefuse/ops/kernels/cuda/grouped_floats.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/register_codes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"

namespace pagefuse::cuda {

// One of any size and format: norms, rotates and stores y, by one warp.
class AnyRow {
 public:
  __device__ AnyRow(const CompressCall&, const Window& window) : table_row_(window.table_row) {}

  __device__ void Store(const CompressCall& p, int64_t slot, float* y) const {
    if (ThreadOfBlock() >= kWarp) return;
    NormFloats(y, p.size, p.epsilon,
               [&p](int d) { return LoadElement(p.weight_type, p.weight, d); });
    RotateFloats(p.rotation, table_row_, y);
    const RowAddress row = p.rows.AtSlot(slot, 0);
    if (p.plain_type != DataType::kUndefined) {
      return EncodePlainRow(p.plain_type, y, p.size, row.data);
    }
    RoundRowThrough<Bfloat16>(y, p.size);
    if (p.hadamard) {
      HadamardRotate(y, p.size);
      RoundRowThrough<Bfloat16>(y, p.size);
    }
    StoreGroupedFloats(p.format, y, row);
  }

 private:
  int64_t table_row_;
};

// One of a published format: the first threads of the block have a few elements each. Its row of the table, which other blocks do not read,
// is on its way while the window is summed.
template <class Row>
class PublishedRow {
 public:
  __device__ PublishedRow(const CompressCall& p, const Window& window)
      : rotation_(p.rotation, HasElements() ? window.table_row : -1, First()) {}

  // All threads of the block come here.
  __device__ void Store(const CompressCall& p, int64_t slot, const float* y) const {
    float x[kElements] = {}, weights[kElements];
    if (HasElements()) {
      LoadElements(p.weight_type, p.weight, First(), weights);
      LoadSums(p, y, x);
    }
    const float factor = NormFactorOf<Row::kSize>(SumOfBlock(SquaresOf(x)), p.epsilon);
    if (!HasElements()) return;
#pragma unroll
    for (int i = 0; i < kElements; ++i) x[i] = __fmul_rn(__fmul_rn(x[i], factor), weights[i]);
    rotation_.Rotate(x, /*rounds=*/false);
    RoundPiece(x);
    if constexpr (Row::kCoded == Row::kSize) {
      if (p.hadamard) {
        HadamardRotatePieces<Row::kSize>(x);
        RoundPiece(x);
      }
    }
    StoreRoundedPiece<Row>(p.format, x, ThreadOfBlock(), /*is_one=*/true, RowOfSlot(p.rows, slot));
  }

 private:
  static constexpr int kElements = Row::kElements, kWarps = Row::kLanes / kWarp;

  __device__ static bool HasElements() { return ThreadOfBlock() < Row::kLanes; }
  __device__ static int First() { return ThreadOfBlock() * kElements; }

  // Each block of the cluster has its columns of y, a multiple of kElements.
  __device__ void LoadSums(const CompressCall& p, const float* y, float (&x)[kElements]) const {
    const int first = First(), block = p.blocks == 1 ? 0 : first / p.columns;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      x[i] = p.blocks == 1 ? y[first + i] : ptx::SharedOfBlock(y + first + i, block);
    }
  }
  // Over the row's warps.
  __device__ static double SumOfBlock(double value) {
    const auto add = [](double a, double b) { return a + b; };
    value = OverRowLanes<kWarp>(value, add);
    if constexpr (kWarps == 1) return value;
    __shared__ double sums[kWarps];
    const int warp = ThreadOfBlock() / kWarp;
    if (warp < kWarps && LaneId() == 0) sums[warp] = value;
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (const double of_warp : sums) sum += of_warp;
    return sum;
  }

  PieceRotation</*kInterleaved=*/true, kElements> rotation_;
};

}  // namespace pagefuse::cuda
