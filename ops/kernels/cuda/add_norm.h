// SPDX-License-Identifier: Apache-2.0
// AddNorm on a CUDA device: the norm of a branch added to the residual, and the norm of that sum. What a row becomes does
// not depend on how many rows there are.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// sum = residual + norm(x) * x_weight; y = norm(sum) * weight, with norm(a) = a / sqrt(mean of a^2 + epsilon) over rows
// [rows, n], dense. Products and the sum are rounded to the type.
struct AddNormParams {
  DataType type = DataType::kFloat;  // of all: float, float16 or bfloat16
  int64_t rows = 0, n = 0;
  float x_epsilon = 0, epsilon = 0;
  const void* x = nullptr;
  const void* residual = nullptr;
  const void* x_weight = nullptr;  // [n]
  const void* weight = nullptr;    // [n]
  void* sum = nullptr;             // may be the residual
  void* y = nullptr;               // may be x
  // Whether nothing on the stream writes the weights: they may be read before the kernel in front has ended.
  bool constant_weights = false;
};
Error LaunchAddNorm(const AddNormParams& params, Stream stream);

}  // namespace pagefuse::cuda
