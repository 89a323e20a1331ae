// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights [K, N], 8 at a time: the kernel and its launches. Device code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/column_sums.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"

namespace pagefuse::cuda {

struct ColumnsCall {
  int64_t n = 0, k = 0, part = 0;
  int m = 0;
  int across = 0, parts = 1;
  bool constant_weights = false;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* up = nullptr;
  Epilogue epilogue;
};

// X: type of x and y; where W is another, x is rounded to it.
template <typename X, typename W, bool kGated, int kRows, bool kWhole>
__global__ void __launch_bounds__(kColumnThreads, kRows == 1 ? 3 : 2)
    ColumnsKernel(const __grid_constant__ ColumnsCall call) {
  using Sums = ColumnSums<W, kGated ? 2 : 1, kRows, kWhole>;
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int block = static_cast<int>(blockIdx.x) % call.parts;
  const int64_t column0 = int64_t{blockIdx.x / call.parts} * call.across * Sums::kCount;
  const int64_t begin = block * call.part;
  const void* weights = Sums::Matrix() == 0 ? call.weight : call.up;
  Sums sums(static_cast<const W*>(weights), call.n, call.across, column0, begin,
            min(begin + call.part, call.k));
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const int row0 = static_cast<int>(blockIdx.y) * kRows, rows = min(call.m - row0, kRows);
  const X* x = static_cast<const X*>(call.x) + row0 * call.k;
  sums.Add(rows, [&](int row, int64_t k) {
    const float value = ToFloat(x[row * call.k + k]);
    return sizeof(X) == sizeof(W) ? value : ToFloat(FromFloat<W>(value));
  });
  sums.Join();
  for (int at = block * kColumnThreads + static_cast<int>(threadIdx.x); at < sums.sums();
       at += call.parts * kColumnThreads) {
    const int row = at / sums.columns();
    const int64_t column = column0 + at % sums.columns();
    if (row >= rows || column >= call.n) continue;
    if constexpr (kGated) {
      call.epilogue.WriteGated<X>(row0 + row, column, sums.Total(0, at, call.parts),
                                  sums.Total(1, at, call.parts));
    } else {
      call.epilogue.Write<X>(row0 + row, column, sums.Total(0, at, call.parts));
    }
  }
  ptx::WaitForCluster();
}

template <typename X, typename W, bool kGated, int kRows, bool kWhole>
Error LaunchColumnsOf(const ProductParams& params, Stream stream) {
  using Sums = ColumnSums<W, kGated ? 2 : 1, kRows, kWhole>;
  const ColumnPlan plan = ColumnPlan::Of(params.n, params.k, Sums::kCount);
  const ColumnsCall call{.n = params.n,
                         .k = params.k,
                         .part = plan.part,
                         .m = static_cast<int>(params.m),
                         .across = plan.across,
                         .parts = plan.parts,
                         .constant_weights = params.constant_weights,
                         .x = params.x,
                         .weight = params.weight.data,
                         .up = params.up.data,
                         .epilogue = Epilogue::Of(params)};
  const LaunchShape shape{.grid = {static_cast<unsigned>(plan.tiles * plan.parts),
                                   static_cast<unsigned>(CeilDiv(params.m, kRows))},
                          .block = kColumnThreads,
                          .shared_bytes = Sums::SharedBytes(plan)};
  return LaunchClusters(ColumnsKernel<X, W, kGated, kRows, kWhole>, shape, plan.parts, stream,
                        call);
}

template <typename X, typename W, bool kGated>
Error LaunchColumnsOf(const ProductParams& params, Stream stream) {
  const auto is_whole = [&](const ProductWeight& w) {
    return IsAligned(w.data, 16) && params.n * static_cast<int64_t>(sizeof(W)) % 16 == 0;
  };
  if (!is_whole(params.weight) || (kGated && !is_whole(params.up))) {
    return params.m == 1 ? LaunchColumnsOf<X, W, kGated, 1, false>(params, stream)
                         : LaunchColumnsOf<X, W, kGated, 8, false>(params, stream);
  }
  if (params.m == 1) return LaunchColumnsOf<X, W, kGated, 1, true>(params, stream);
  return params.m <= 4 ? LaunchColumnsOf<X, W, kGated, 4, true>(params, stream)
                       : LaunchColumnsOf<X, W, kGated, 8, true>(params, stream);
}

template <bool kGated>
Error LaunchColumns(const ProductParams& params, Stream stream) {
  if (params.type != params.weight.type) {
    return LaunchColumnsOf<float, Bfloat, kGated>(params, stream);
  }
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return LaunchColumnsOf<T, T, kGated>(params, stream);
  });
}

// In a source of its own.
Error LaunchSmallColumnsGated(const ProductParams& params, Stream stream);

}  // namespace pagefuse::cuda
