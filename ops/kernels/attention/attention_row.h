// SPDX-License-Identifier: Apache-2.0
// One query row of attention over float32 keys and values: what every dense attention op shares.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/rows/rows_hwy.h"

namespace pagefuse::onnx_ops {

// keys and values have as many rows; `keys.size` is the size of q, `values.size` that of y.
struct AttentionRow {
  const float* q = nullptr;
  RowBlock keys = {};
  RowBlock values = {};
  float scale = 1;
  float softcap = 0;            // c > 0: scores become c * tanh(score / c)
  const float* bias = nullptr;  // added to capped scores, -infinity masks; null: none
  int64_t bias_stride = 0;
  const float* sink = nullptr;  // a score that takes probability and has no value; null: none
  float* scores = nullptr;      // memory for one score a key
  float* y = nullptr;
};

// y = softmax(scores) * values; zeros if no key is seen. Any alignment. Thread-safe.
void AttendRow(const AttentionRow& row);

}  // namespace pagefuse::onnx_ops
