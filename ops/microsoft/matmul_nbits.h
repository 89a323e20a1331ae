// The weight of MatMulNBits and of quantised experts, as the ports give it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/kernels/linalg/nbits.h"
#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {

// Scales and zero points as the kernels read them; owns what had to be converted.
struct NBitsParameters {
  FloatValues scales;
  FloatValues zeros;                    // zero points of a float type
  const uint8_t* zero_codes = nullptr;  // packed zero points

  static absl::StatusOr<NBitsParameters> Of(const TensorArg& scales, const TensorArg& zeros);
};

}  // namespace pagefuse::microsoft_ops
