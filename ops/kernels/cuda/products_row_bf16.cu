// SPDX-License-Identifier: Apache-2.0
// Products of one row, as a decode step of one sequence has them.
#include "pagefuse/ops/kernels/cuda/short_row_bf16.h"

namespace pagefuse::cuda {
namespace {

// Short rows are for registers, a longer one has more warps; the longest only where all run at once. Much of W is for
// blocks that stay.
template <typename X, bool kGated>
Error LaunchOf(const ProductParams& params, Stream stream) {
  const int64_t pieces = params.k / kOwnElements;
  if (!HasLargeWeights(params)) {
    if (pieces <= kMostRowPieces<5, 1>) return LaunchShortRow<X, kGated, 5, 1>(params, stream);
    if (pieces <= kMostRowPieces<5, 2>) return LaunchShortRow<X, kGated, 5, 2>(params, stream);
    const int64_t columns =
        int64_t{Multiprocessors()} * kShortRowBlocks * kShortRowColumns<kGated, 4>;
    const int64_t rows = params.n * StackOf(params).products();
    if (pieces <= kMostRowPieces<7, 4> && rows <= columns) {
      return LaunchShortRow<X, kGated, 7, 4>(params, stream);
    }
  }
  return LaunchSmall<X, kGated, RowSums>(params, stream);
}

template <typename X>
Error LaunchFrom(const ProductParams& params, Stream stream) {
  return params.gated() ? LaunchOf<X, true>(params, stream) : LaunchOf<X, false>(params, stream);
}

}  // namespace

bool SuitsRowBf16(const ProductParams& params) { return params.m == 1 && SuitsSmallBf16(params); }

Error LaunchRowBf16(const ProductParams& params, Stream stream) {
  return params.type == DataType::kFloat ? LaunchFrom<float>(params, stream)
                                         : LaunchFrom<Bfloat>(params, stream);
}

}  // namespace pagefuse::cuda
