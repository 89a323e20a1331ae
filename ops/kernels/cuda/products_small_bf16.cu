// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_bf16.h"

namespace pagefuse::cuda {
namespace {

constexpr int64_t kMostRows = 16;

// Rows of 16-byte pieces.
bool SuitsPieces(const ProductWeight& w) {
  return w.type == DataType::kBfloat16 && w.rows && IsAligned(w.data, 16);
}

template <typename X>
Error LaunchOf(const ProductParams& params, Stream stream) {
  // A long row has more warps, each with more in flight; what is longer still comes in rounds. Of up to 8 rows
  // it does so early, as two blocks of 64 registers fit a multiprocessor; of more rows they do not.
  if (params.k <= 5 * 8 * kChunk) return LaunchSmall<X, false, 8, 5>(params, stream);
  if (params.m <= 8 || params.k <= 7 * 16 * kChunk) {
    return LaunchSmall<X, false, 16, 7>(params, stream);
  }
  return LaunchSmall<X, false, 16, 14>(params, stream);
}

}  // namespace

bool SuitsSmallBf16(const ProductParams& params) {
  return params.m <= kMostRows && !params.x_turned && params.batch.empty() &&
         params.k % kOwnElements == 0 && params.k > 0 && IsAligned(params.x, 16) &&
         (params.type == DataType::kFloat || params.type == DataType::kBfloat16) &&
         SuitsPieces(params.weight) && (!params.gated() || SuitsPieces(params.up));
}

Error LaunchSmallBf16(const ProductParams& params, Stream stream) {
  if (params.gated()) return LaunchSmallGated(params, stream);
  return params.type == DataType::kFloat ? LaunchOf<float>(params, stream)
                                         : LaunchOf<Bfloat>(params, stream);
}

}  // namespace pagefuse::cuda
