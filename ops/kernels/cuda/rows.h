// SPDX-License-Identifier: Apache-2.0
// Ops on rows on a CUDA device: norms, softmax, reductions, rotary embedding. Types are float, float16 and bfloat16,
// computed in float. What a row becomes does not depend on how many rows there are.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// s = x + skip + bias; y = (s - mean) / sqrt(mean of (s - mean)^2 + epsilon) * scale + shift for rows [rows, n], with
// the mean where `centred`, else 0. Dense; what is null is left out.
struct NormParams {
  DataType type = DataType::kFloat;        // of x, skip, bias and sum
  DataType scale_type = DataType::kFloat;  // of scale, shift and y: as `type`
  int64_t rows = 0, n = 0;
  float epsilon = 0;
  bool centred = false;
  const void* x = nullptr;
  const void* skip = nullptr;  // [skip_rows, n], repeated
  int64_t skip_rows = 1;
  const void* bias = nullptr;   // [n]
  const void* scale = nullptr;  // [n], or one number
  bool one_scale = false;
  const void* shift = nullptr;  // [n]
  void* y = nullptr;            // may be x
  void* sum = nullptr;          // s
  float* mean = nullptr;        // [rows]
  float* inverse = nullptr;     // [rows]: 1 / sqrt(...)
  // Whether nothing on the stream writes the scale: it may be read before the kernel in front has ended.
  bool constant_weights = false;
};
Error LaunchNorm(const NormParams& params, Stream stream);

// e^x / sum of e^x, or the logarithm of that, along the middle of [outer, n, inner].
struct SoftmaxParams {
  DataType type = DataType::kFloat;
  int64_t outer = 0, n = 0, inner = 0;
  bool log = false;
  const void* x = nullptr;
  void* y = nullptr;  // may be x
};
Error LaunchSoftmax(const SoftmaxParams& params, Stream stream);

enum class Reduction : uint8_t { kSum, kMean, kMax, kMin, kProduct, kL1, kL2, kSumSquare, kLogSum };
// y = the reduction over the axes of x for which `reduced` is set: [kept axes]. Of int32 and int64 too; sums of
// floats are made in double, integers wrap.
struct ReduceParams {
  DataType type = DataType::kFloat;
  Reduction reduction = Reduction::kSum;
  std::vector<int64_t> dims;
  std::vector<bool> reduced;
  const void* x = nullptr;
  void* y = nullptr;
};
Error LaunchReduce(const ReduceParams& params, Stream stream);

// Rotates pairs (a, b) of each head to (a cos - b sin, b cos + a sin), times scale. Head h of token (b, s) begins at
// b * batch + s * step + h * head; its pairs are neighbours if interleaved, else `half` apart.
struct RotaryParams {
  DataType type = DataType::kFloat;
  int64_t batches = 0, length = 0, heads = 0, size = 0;
  int64_t batch = 0, step = 0, head = 0;
  int64_t half = 0;  // pairs; elements from 2 * half on are copied
  bool interleaved = false;
  float scale = 1.0f;
  const void* x = nullptr;
  const void* cos = nullptr;  // [table_rows, half]
  const void* sin = nullptr;
  int64_t table_rows = 0;
  // Rows of the tables by token, [batches, length], or the first of each batch; null: the token's number. A row
  // that is not there rotates nothing.
  const int64_t* positions = nullptr;
  bool first_position = false;
  void* y = nullptr;  // may be x
};
Error LaunchRotary(const RotaryParams& params, Stream stream);

}  // namespace pagefuse::cuda
