// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention on tiles over rows of bfloat16.
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles_kernel.h"

namespace pagefuse::cuda {

Error LaunchLatentBf16(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                       Stream stream) {
  if (tiles.format == LatentTilesFormat::kBfloat16Of576) {
    return latent::LaunchRowsOf<latent::Bf16Rows<576>>(call, results, tiles, stream);
  }
  return latent::LaunchRowsOf<latent::Bf16Rows<512>>(call, results, tiles, stream);
}

}  // namespace pagefuse::cuda
