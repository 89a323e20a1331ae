// SPDX-License-Identifier: Apache-2.0
// What ops that rotate rows by a table of cosines and sines read from their arguments.
#pragma once

#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/rows/rope_row.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/port.h"

namespace pagefuse::pagefuse_ops {

// Input numbers: rows [T, H, D], a table [P, R] and positions [T].
struct RotationPorts {
  int rows;
  int cos_sin;
  int positions;
};
template <size_t N>
constexpr RotationPorts RotationPortsOf(const Ports<N>& inputs, std::string_view rows) {
  return {inputs.Find(rows), inputs.Find("cos_sin"), inputs.Find("positions")};
}

CosSinTable TableOf(const TensorArg& cos_sin);
// Sets `rows` by checked arguments: the last R channels are rotated, in interleaved pairs.
void ReadRows(const KernelArgs& args, const RotationPorts& ports, RowsToRotate& rows);
// Positions are rows of the table (InvalidArgument).
absl::Status CheckPositions(const KernelArgs& args, const RotationPorts& ports);

}  // namespace pagefuse::pagefuse_ops
