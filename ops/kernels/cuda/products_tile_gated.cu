// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/tile_bf16.h"

namespace pagefuse::cuda {

Error LaunchTileBf16Gated(const ProductParams& params, const TileBf16Plan& plan,
                          const void* rounded, Stream stream) {
  const auto* x = static_cast<const Bfloat*>(rounded);
  return params.type == DataType::kFloat ? LaunchBf16TilesOf<float, 2>(params, plan, x, stream)
                                         : LaunchBf16TilesOf<Bfloat, 2>(params, plan, x, stream);
}

}  // namespace pagefuse::cuda
