// SPDX-License-Identifier: Apache-2.0
// The types that rows of floats have in memory, for launches. Host code, in sources of device code.
#pragma once

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::cuda {

// f.operator()<T>() for float, float16 or bfloat16.
template <class F>
Error ForRowType(DataType type, const F& f) {
  switch (type) {
    case DataType::kFloat:
      return f.template operator()<float>();
    case DataType::kFloat16:
      return f.template operator()<Float16>();
    case DataType::kBfloat16:
      return f.template operator()<Bfloat16>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pagefuse::cuda
