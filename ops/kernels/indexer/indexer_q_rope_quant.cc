// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/indexer/indexer_q_rope_quant.h"

#include <vector>

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Rounds x[0, n) to bfloat16, unless the row stays as numbers.
void Round(const IndexerQCall& call, float* x, int64_t n) {
  if (!call.is_plain) RoundThrough(DataType::kBfloat16, x, n).IgnoreError();
}

void Rotate(const IndexerQCall& call, int64_t position, float* x) {
  RotateByTable(call.layout, call.table, position, x);
  Round(call, x + call.layout.offset, call.table.rotated);
  if (!call.hadamard) return;
  HadamardRotate(x, call.size);
  Round(call, x, call.size);
}

// The scale of the last group.
float Encode(const IndexerQCall& call, int64_t row, const float* x) {
  uint8_t* codes = call.codes + row * call.CodeRowBytes();
  if (call.is_plain) {
    EncodeFromFloat(call.type, x, call.size, codes).IgnoreError();
    return 1.0f;
  }
  const int64_t groups = call.size / call.group;
  float scale = 1.0f;
  for (int64_t g = 0; g < groups; ++g) {
    scale = EncodeGroup(call.format, x + g * call.group, call.group,
                        codes + g * call.format.CodeBytes(call.group));
    if (call.folds_scale()) continue;
    StoreGroupScale(call.format.scale, scale, call.scales + row * groups + g);
  }
  return scale;
}

}  // namespace

void IndexerQRopeQuantPlain(const IndexerQCall& call) {
  std::vector<float> x(call.size);
  for (int64_t row = 0; row < call.rows(); ++row) {
    // The source is of a float type: never an error.
    DecodeToFloat(call.type, call.Row(row), call.size, x.data()).IgnoreError();
    Rotate(call, call.positions[row / call.heads], x.data());
    const float scale = Encode(call, row, x.data());
    float weight = 0;
    // Weights are of a float type too.
    DecodeToFloat(call.weight_type, call.weights + row * call.WeightBytes(), 1, &weight)
        .IgnoreError();
    call.weights_out[row] = call.ScaledWeight(weight, scale);
  }
}

}  // namespace pagefuse::pagefuse_ops
