// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/inv_rope_quant.h"

#include <vector>

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

void InvRopeQuantPlain(const InvRopeCall& call) {
  std::vector<float> x(call.size);
  for (int64_t row = 0; row < call.rows(); ++row) {
    // The source is of a float type: never an error.
    DecodeToFloat(call.type, call.Row(row), call.size, x.data()).IgnoreError();
    const int64_t position = call.positions[row / call.heads];
    RotateByTable(call.layout, call.table, position, x.data(), RopeDirection::kInverse);
    for (int64_t g = 0; g < call.size / call.group; ++g) {
      const float scale = EncodeGroup(call.format, x.data() + g * call.group, call.group,
                                      call.codes + row * call.size + g * call.group);
      StoreGroupScale(call.format.scale, scale,
                      call.scales + row * call.ScaleRowBytes() + g * call.format.ScaleBytes());
    }
  }
}

}  // namespace pagefuse::pagefuse_ops
