// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/rotated_rows.h"

#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {

CosSinTable TableOf(const TensorArg& cos_sin) {
  return {cos_sin.dtype, cos_sin.as<const uint8_t>(), cos_sin.dim(1)};
}

void ReadRows(const KernelArgs& args, const RotationPorts& ports, RowsToRotate& rows) {
  const TensorArg& source = args.input(ports.rows);
  rows.type = source.dtype;
  rows.source = source.as<const uint8_t>();
  rows.tokens = source.dim(0);
  rows.heads = source.dim(1);
  rows.size = source.dim(2);
  rows.table = TableOf(args.input(ports.cos_sin));
  rows.layout = {rows.table.pairs(), rows.size - rows.table.rotated, /*interleaved=*/true};
  rows.positions = IndicesOf(args.input(ports.positions));
}

absl::Status CheckPositions(const KernelArgs& args, const RotationPorts& ports) {
  return CheckIndices(args, ports.positions, args.input(ports.cos_sin).dim(0), "positions");
}

}  // namespace pagefuse::pagefuse_ops
