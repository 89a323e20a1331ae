// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention on tiles over rows of fp8_ds_mla.
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles_kernel.h"

namespace pagefuse::cuda {

Error LaunchLatentDsMla(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream) {
  return latent::LaunchRowsOf<latent::DsMlaRows>(call, results, tiles, stream);
}

}  // namespace pagefuse::cuda
