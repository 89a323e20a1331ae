// SPDX-License-Identifier: Apache-2.0
// Copies to shared memory that go on beside a kernel, of rows that are aligned to four bytes alone. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

// Four bytes, both sides aligned to four.
__device__ inline void CopyAsync4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(ptx::SharedAddress(shared)),
               "l"(global)
               : "memory");
}

}  // namespace pagefuse::cuda
