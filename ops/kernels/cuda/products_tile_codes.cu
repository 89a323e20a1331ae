// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/product_tile.h"

namespace pagefuse::cuda {

Error LaunchTileCodes(const ProductParams& params, Stream stream) {
  return ForFloatType(
      params.type, [&]<typename T>() -> Error { return LaunchTiles<T, Codes<T>>(params, stream); });
}

}  // namespace pagefuse::cuda
