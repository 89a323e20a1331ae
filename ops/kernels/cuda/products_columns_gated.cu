// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/products_columns.h"

namespace pagefuse::cuda {

Error LaunchSmallColumnsGated(const ProductParams& params, Stream stream) {
  return LaunchColumns<true>(params, stream);
}

}  // namespace pagefuse::cuda
