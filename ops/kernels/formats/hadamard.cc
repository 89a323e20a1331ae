// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/hadamard.h"

#include <cmath>

#include "pagefuse/ops/kernels/formats/cache_format.h"

namespace pagefuse {

float HadamardEntry(int64_t n) { return 1.0f / std::sqrt(static_cast<float>(n)); }

void HadamardRotate(float* x, int64_t n) {
  HadamardTransform(x, n);
  const float entry = HadamardEntry(n);
  for (int64_t i = 0; i < n; ++i) x[i] *= entry;
}

}  // namespace pagefuse
