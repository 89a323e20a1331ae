// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu.h"

namespace pagefuse::cuda_bench {

// TFLOP/s of a product of 8192 x 8192 random matrices in bfloat16 by cuBLASLt; 0 where the library does not
// open.
double ProductCeiling(const Gpu& gpu);

}  // namespace pagefuse::cuda_bench
