// SPDX-License-Identifier: Apache-2.0
// A constant matrix as codes in blocks of 32 along what products sum over.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// A matrix [N, K] of floats, or [K, N] where not `columns_sum`: products sum over K. Or a stack of
// them, of experts or of heads, with an axis for them in front.
struct WeightMatrix {
  const Tensor* tensor = nullptr;
  bool columns_sum = true;  // false: rows of the tensor are along K

  int64_t n() const { return side(columns_sum ? 0 : 1); }
  int64_t k() const { return side(columns_sum ? 1 : 0); }
  // Matrices in the stack.
  int64_t count() const { return is_stack() ? tensor->dims()[0] : 1; }
  bool is_stack() const { return tensor->rank() == 3; }

 private:
  int64_t side(int i) const { return tensor->dims()[static_cast<size_t>(is_stack() ? i + 1 : i)]; }
};

struct WeightCodes {
  Tensor codes;   // uint8 [N, blocks, 32 * bits / 8], as MatMulNBits has them; a stack [E, N, ..]
  Tensor scales;  // of the matrix' type [N, blocks]; a stack [E, N, blocks]
};

// InvalidArgument if the matrix has NaN or infinity; ResourceExhausted if there is no memory. Pages
// of a mapped file are given back.
absl::StatusOr<WeightCodes> QuantiseMatrix(const WeightMatrix& matrix, int bits);

}  // namespace pagefuse
