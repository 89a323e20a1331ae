// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/product_tile.h"

namespace pagefuse::cuda {

Error LaunchTileFloat(const ProductParams& params, Stream stream) {
  if (params.weight.is_codes()) return LaunchTileCodes(params, stream);
  if (params.type == DataType::kFloat && params.weight.type == DataType::kBfloat16) {
    return LaunchTiles<float, Numbers<Bfloat>, true>(params, stream);
  }
  if (params.type != params.weight.type) return kTooLarge;
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return LaunchTiles<T, Numbers<T>>(params, stream);
  });
}

}  // namespace pagefuse::cuda
