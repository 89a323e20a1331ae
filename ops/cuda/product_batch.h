// SPDX-License-Identifier: Apache-2.0
// Batches of matrices that products multiply one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda {

// The matrix that an operand is: a vector is a row on the left, a column on the right.
struct Matrices {
  std::vector<int64_t> batch;
  int64_t rows, columns;  // as they are multiplied

  Matrices(const std::vector<int64_t>& dims, bool left, bool turned);
};

// The batch of the product of `a`, x, with `b`, the weight, and how far each step along it is in matrices of both.
void SetBatch(const Matrices& a, const Matrices& b, ProductParams& params);

}  // namespace pagefuse::cuda
