// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {

Error LaunchGroupedInt8(const GroupedProductParams& params, const GroupedRowsCall& call,
                        int tile_rows, Stream stream) {
  return params.weight.bits == 4
             ? LaunchGroupedRowsOf<float, Int8Operand<4>>(call, tile_rows, stream)
             : LaunchGroupedRowsOf<float, Int8Operand<8>>(call, tile_rows, stream);
}

}  // namespace pagefuse::cuda
