// SPDX-License-Identifier: Apache-2.0
// Views of float32 matrices, as the linear kernels take them.
#pragma once

#include <cstdint>

namespace pagefuse {

// A weight [k, n] in row-major order, or [n, k] where `transposed`: y = x * W reads it as [k, n]
// either way. The memory is the caller's; no alignment is needed.
struct WeightView {
  const float* data = nullptr;
  int64_t k = 0;
  int64_t n = 0;
  bool transposed = false;
};

// Activations x [m, k], rows `stride` floats apart.
struct RowsView {
  const float* data = nullptr;
  int64_t m = 0;
  int64_t stride = 0;
};

// The output y [m, n], rows `stride` floats apart.
struct OutputView {
  float* data = nullptr;
  int64_t stride = 0;
};

}  // namespace pagefuse
