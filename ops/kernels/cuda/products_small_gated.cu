// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_tiles_bf16.h"

namespace pagefuse::cuda {

Error LaunchSmallGated(const ProductParams& params, Stream stream) {
  return params.type == DataType::kFloat ? LaunchSmallTiles<float, true>(params, stream)
                                         : LaunchSmallTiles<Bfloat, true>(params, stream);
}

}  // namespace pagefuse::cuda
