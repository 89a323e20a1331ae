// SPDX-License-Identifier: Apache-2.0
// Products of one row, as a decode step of one sequence has them.
#include "pagefuse/ops/kernels/cuda/short_row_bf16.h"

namespace pagefuse::cuda {
namespace {

// Short rows are for registers, longer ones only where all blocks run at once. Much of W is for blocks that stay.
template <typename X, bool kGated>
Error LaunchOf(const ProductParams& params, Stream stream) {
  using Short = ShortRows<kGated>;
  using Long = LongRows<kGated>;
  const int64_t pieces = params.k / kOwnElements;
  if (!HasLargeWeights(params)) {
    if (pieces <= Short::kMostPieces) return LaunchShortRow<X, kGated, Short>(params, stream);
    const int64_t rows = params.n * StackOf(params).products() * (kGated ? 2 : 1);
    const int64_t at_once = int64_t{Multiprocessors()} * Long::kResidents * Long::kRows;
    if (pieces <= Long::kMostPieces && rows <= at_once) {
      return LaunchShortRow<X, kGated, Long>(params, stream);
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
