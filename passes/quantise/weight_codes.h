// A constant matrix as codes in blocks of 32 along what products sum over.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor.h"

namespace pagefuse {

// A matrix [N, K] of floats, or [K, N] where `columns_sum`: products sum over K.
struct WeightMatrix {
  const Tensor* tensor = nullptr;
  bool columns_sum = true;  // false: rows of the tensor are along K

  int64_t n() const { return tensor->dims()[columns_sum ? 0 : 1]; }
  int64_t k() const { return tensor->dims()[columns_sum ? 1 : 0]; }
};

struct WeightCodes {
  Tensor codes;   // uint8 [N, blocks, 32 * bits / 8], as MatMulNBits has them
  Tensor scales;  // of the matrix' type [N, blocks]
};

// InvalidArgument if the matrix has NaN or infinity; ResourceExhausted if there is no memory. Pages
// of a mapped file are given back.
absl::StatusOr<WeightCodes> QuantiseMatrix(const WeightMatrix& matrix, int bits);

}  // namespace pagefuse
