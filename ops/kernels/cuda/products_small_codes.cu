// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_rows.h"

namespace pagefuse::cuda {
namespace {

template <typename T, bool kGated>
Error LaunchOf(const ProductParams& params, Stream stream) {
  return params.weight.bits == 4 ? LaunchSmallRowsOf<T, CodePieces<T, 4>, kGated>(params, stream)
                                 : LaunchSmallRowsOf<T, CodePieces<T, 8>, kGated>(params, stream);
}

}  // namespace

Error LaunchSmallCodes(const ProductParams& params, Stream stream) {
  if (params.gated()) return LaunchOf<float, true>(params, stream);
  return params.type == DataType::kFloat ? LaunchOf<float, false>(params, stream)
                                         : LaunchOf<Half, false>(params, stream);
}

}  // namespace pagefuse::cuda
