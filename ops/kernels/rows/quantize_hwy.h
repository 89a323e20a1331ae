// SPDX-License-Identifier: Apache-2.0
// Rows of QuantizeLinear with Highway.
#pragma once

#include <cstdint>

namespace pagefuse::onnx_ops {

// Scales and zero points of a row: one for all elements (step 0) or one each (step 1).
struct QuantizeParameters {
  const float* scales;
  const float* zeros;
  int64_t step;
};

// y[i] = saturate(round(x[i] / scale) + zero), halves to even, NaN becomes 0; to int8 where
// `is_signed`, else to uint8. Any alignment.
void QuantizeRow(const float* x, int64_t n, const QuantizeParameters& parameters, bool is_signed,
                 uint8_t* y);

}  // namespace pagefuse::onnx_ops
