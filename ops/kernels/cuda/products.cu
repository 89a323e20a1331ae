// SPDX-License-Identifier: Apache-2.0
// Which kernel computes a product.
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda {

size_t ProductScratchBytes(const ProductParams& params) {
  if (params.m == 0 || params.n == 0) return 0;
  if (SuitsInt8(params)) return Int8ScratchBytes(params);
  if (SuitsSmallBf16(params)) return 0;
  return SuitsTileBf16(params) ? TileBf16ScratchBytes(params) : 0;
}

Error LaunchProduct(const ProductParams& params, Stream stream) {
  int64_t products = 1;
  for (const int64_t size : params.batch) products *= size;
  if (params.m == 0 || params.n == 0 || products == 0) return 0;
  if (SuitsInt8(params)) return LaunchInt8(params, stream);
  if (SuitsRowBf16(params)) return LaunchRowBf16(params, stream);
  if (SuitsSmallBf16(params)) return LaunchSmallBf16(params, stream);
  if (SuitsTileBf16(params)) return LaunchTileBf16(params, stream);
  if (SuitsSmallRows(params)) return LaunchSmallRows(params, stream);
  if (SuitsSmallColumns(params)) return LaunchSmallColumns(params, stream);
  return LaunchTileFloat(params, stream);
}

}  // namespace pagefuse::cuda
