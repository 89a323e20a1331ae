// SPDX-License-Identifier: Apache-2.0
// Float32 rows of reductions and normalisations with Highway. Rows are contiguous, of any
// alignment; where an op has an output row it may be the input row.
#pragma once

#include <cstdint>

namespace pagefuse::onnx_ops {

// Consecutive rows of `size` floats, `stride` apart.
struct RowBlock {
  const float* rows;
  int64_t stride;
  int64_t count;
  int64_t size;
};

float SumOfRow(const float* x, int64_t n);  // 0 for an empty row
float SumOfSquaresOfRow(const float* x, int64_t n);
float SumOfAbsRow(const float* x, int64_t n);
float ProductOfRow(const float* x, int64_t n);  // 1 for an empty row
float MaxOfRow(const float* x, int64_t n);      // -infinity for an empty row; NaN if there is one
float MinOfRow(const float* x, int64_t n);      // infinity for an empty row; NaN if there is one

// log(sum of e^x), as max + log(sum of e^(x - max)); -infinity for an empty row.
float LogSumExpRow(const float* x, int64_t n);

// Index of the largest (smallest) element, of several the first or the last. A NaN is passed over,
// or stays the best if it is the first element. n > 0.
int64_t IndexOfMaxRow(const float* x, int64_t n, bool last);
int64_t IndexOfMinRow(const float* x, int64_t n, bool last);

// y = e^(x - max) / sum. A row without a finite maximum gives NaN, as the formula does.
void SoftmaxRow(const float* x, float* y, int64_t n);
// y = x - max - log(sum of e^(x - max)).
void LogSoftmaxRow(const float* x, float* y, int64_t n);
// y = x * factor * scale; scale has n elements.
void ScaleRow(const float* x, float factor, const float* scale, float* y, int64_t n);

// The dot product.
float DotRow(const float* a, const float* b, int64_t n);
// y += factor * x.
void AddScaledRow(const float* x, float factor, float* y, int64_t n);

}  // namespace pagefuse::onnx_ops
