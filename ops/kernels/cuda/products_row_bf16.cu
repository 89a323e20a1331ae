// SPDX-License-Identifier: Apache-2.0
// Products of one row, as a decode step of one sequence has them.
#include "pagefuse/ops/kernels/cuda/row_bf16.h"

namespace pagefuse::cuda {
namespace {

constexpr int64_t kLongest = kMostRowPieces<7, 4> * kOwnElements;
constexpr int64_t kMostColumns = int64_t{1} << 30;  // numbers of columns are int

// A long row has more warps, so that a lane's registers hold its weights.
template <typename X, bool kGated>
Error LaunchOf(const ProductParams& params, Stream stream) {
  const int64_t pieces = params.k / kOwnElements;
  if (pieces <= kMostRowPieces<5, 1>) return LaunchRow<X, kGated, 5, 1>(params, stream);
  if (pieces <= kMostRowPieces<5, 2>) return LaunchRow<X, kGated, 5, 2>(params, stream);
  return LaunchRow<X, kGated, 7, 4>(params, stream);
}

template <typename X>
Error LaunchFrom(const ProductParams& params, Stream stream) {
  return params.gated() ? LaunchOf<X, true>(params, stream) : LaunchOf<X, false>(params, stream);
}

}  // namespace

bool SuitsRowBf16(const ProductParams& params) {
  return params.m == 1 && params.k <= kLongest && params.n <= kMostColumns &&
         SuitsSmallBf16(params);
}

Error LaunchRowBf16(const ProductParams& params, Stream stream) {
  return params.type == DataType::kFloat ? LaunchFrom<float>(params, stream)
                                         : LaunchFrom<Bfloat>(params, stream);
}

}  // namespace pagefuse::cuda
