// SPDX-License-Identifier: Apache-2.0
// CumSum and CumProd on the device.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Running sums, or products, along the middle of x [outer, n, inner]. float, double, float16, bfloat16, and integers
// of 32 and 64 bits, which wrap. Floats are joined one by one from the begin of a line on, narrow ones in float.
struct RunningSum {
  DataType type = DataType::kFloat;
  int64_t outer = 0, n = 0, inner = 0;
  bool product = false;
  bool exclusive = false;  // without the element itself
  bool reverse = false;    // from the end of a line on
  const void* x = nullptr;
  void* y = nullptr;  // may be x
};
Error LaunchRunningSum(const RunningSum& call, Stream stream);

}  // namespace pagefuse::cuda
