// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {
namespace {

template <int kBits>
Error LaunchBits(const GroupedRowsCall& call, int tile_rows, Stream stream) {
  using Operand = FloatOperand<float, CodePieces<float, kBits>, false>;
  return LaunchGroupedRowsOf<float, Operand>(call, tile_rows, stream);
}

}  // namespace

Error LaunchGroupedCodes(const GroupedProductParams& params, const GroupedRowsCall& call,
                         int tile_rows, Stream stream) {
  switch (params.weight.bits) {
    case 2:
      return LaunchBits<2>(call, tile_rows, stream);
    case 4:
      return LaunchBits<4>(call, tile_rows, stream);
    default:
      return LaunchBits<8>(call, tile_rows, stream);
  }
}

}  // namespace pagefuse::cuda
