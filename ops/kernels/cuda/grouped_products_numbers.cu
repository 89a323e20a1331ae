// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {

Error LaunchGroupedNumbers(const GroupedProductParams& params, const GroupedRowsCall& call,
                           int tile_rows, Stream stream) {
  if (params.type != params.weight.type) {
    using Rounded = FloatOperand<float, NumberPieces<Bfloat>, true>;
    return LaunchGroupedRowsOf<float, Rounded>(call, tile_rows, stream);
  }
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    using Same = FloatOperand<T, NumberPieces<T>, false>;
    return LaunchGroupedRowsOf<T, Same>(call, tile_rows, stream);
  });
}

}  // namespace pagefuse::cuda
