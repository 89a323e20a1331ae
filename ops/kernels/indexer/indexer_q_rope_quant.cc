#include "pagefuse/kernels/indexer/indexer_q_rope_quant.h"

#include <vector>

#include "pagefuse/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

int64_t IndexerQCall::SourceRowBytes() const { return size * BitWidth(type) / 8; }

void IndexerQRopeQuantPlain(const IndexerQCall& call) {
  std::vector<float> x(call.size);
  for (int64_t row = 0; row < call.rows(); ++row) {
    // The source is of a float type: never an error.
    DecodeToFloat(call.type, call.source + row * call.SourceRowBytes(), call.size, x.data())
        .IgnoreError();
    const int64_t position = call.positions[row / call.heads];
    RotateByTable(call.layout, call.table, position, x.data());
    for (int64_t i = 0; i < call.table.rotated; ++i) {
      float& channel = x[call.layout.offset + i];
      channel = static_cast<float>(Bfloat16(channel));
    }
    const int64_t groups = call.size / call.group;
    float scale = 1.0f;
    for (int64_t g = 0; g < groups; ++g) {
      scale = EncodeGroup(
          call.format, x.data() + g * call.group, call.group,
          call.codes + row * call.CodeRowBytes() + g * call.format.CodeBytes(call.group));
      if (call.folds_scale()) continue;
      StoreGroupScale(call.format.scale, scale, call.scales + row * groups + g);
    }
    float weight = 0;
    // Weights are of a float type too.
    DecodeToFloat(call.weight_type, call.weights + row * call.WeightBytes(), 1, &weight)
        .IgnoreError();
    call.weights_out[row] = call.ScaledWeight(weight, scale);
  }
}

}  // namespace pagefuse::pagefuse_ops
