// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention on tiles over rows of fp8_ue8m0.
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles_kernel.h"

namespace pagefuse::cuda {

Error LaunchLatentUe8m0(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream) {
  return latent::LaunchRowsOf<latent::Ue8m0Rows>(call, results, tiles, stream);
}

}  // namespace pagefuse::cuda
