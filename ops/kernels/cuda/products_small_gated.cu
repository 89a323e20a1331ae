// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_bf16.h"

namespace pagefuse::cuda {
namespace {

template <typename X>
Error LaunchOf(const ProductParams& params, Stream stream) {
  if (params.k <= 5 * 8 * kChunk) return LaunchSmall<X, true, 8, 5>(params, stream);
  return LaunchSmall<X, true, 16, 7>(params, stream);
}

}  // namespace

Error LaunchSmallGated(const ProductParams& params, Stream stream) {
  return params.type == DataType::kFloat ? LaunchOf<float>(params, stream)
                                         : LaunchOf<Bfloat>(params, stream);
}

}  // namespace pagefuse::cuda
