// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/head_rows.h"

#include <cmath>

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"

namespace pagefuse::microsoft_ops {

namespace {

// Pair i is x[i * step], y[i * step]; neither is seen through c, s or the other. With a constant
// step the compiler makes vectors of it.
template <int64_t step>
void RotatePairs(const float* __restrict c, const float* __restrict s, int64_t count,
                 float* __restrict x, float* __restrict y) {
  for (int64_t i = 0; i < count; ++i) {
    const float a = x[i * step];
    const float b = y[i * step];
    x[i * step] = a * c[i] - b * s[i];
    y[i * step] = b * c[i] + a * s[i];
  }
}

}  // namespace

void Rotation::Apply(int64_t position, float* row) const {
  if (cosines == nullptr) return;
  const float* c = cosines + position * half;
  const float* s = sines + position * half;
  float* x = row + offset;
  if (interleaved) {
    RotatePairs<2>(c, s, half, x, x + 1);
  } else {
    RotatePairs<1>(c, s, half, x, x + half);
  }
}

void HeadNorm::Apply(float* row, int64_t size) const {
  if (weight == nullptr) return;
  const float mean = onnx_ops::SumOfSquaresOfRow(row, size) / static_cast<float>(size);
  onnx_ops::ScaleRow(row, 1.0f / std::sqrt(mean + epsilon), weight, row, size);
}

void HeadSource::Load(int64_t token, int64_t head, float* row) const {
  const int64_t element = token * width + first + head * size;
  DecodeToFloat(tensor->dtype, onnx_ops::ElementAt(*tensor, element), size, row)
      .IgnoreError();  // one of the op's types
}

HeadSource HeadSourceOf(const KernelArgs& args, const HeadCounts& counts, int which, int64_t size) {
  HeadSource source;
  source.heads = which == 0 ? counts.q_heads : counts.kv_heads;
  source.size = size;
  if (!counts.packed) {
    source.tensor = &args.input(which);
    source.width = source.heads * size;
    return source;
  }
  source.tensor = &args.input(0);
  source.width = (counts.q_heads + 2 * counts.kv_heads) * size;
  const int64_t heads_before[] = {0, counts.q_heads, counts.q_heads + counts.kv_heads};
  source.first = heads_before[which] * size;
  return source;
}

void HeadPreparation::Apply(int64_t position, float* row, int64_t size) const {
  norm.Apply(row, size);
  rotation.Apply(position, row);
  if (round_to != DataType::kFloat) RoundThrough(round_to, row, size).IgnoreError();
}

}  // namespace pagefuse::microsoft_ops
