// SPDX-License-Identifier: Apache-2.0
// Instructions of the prompt kernel. Device code alone.
#pragma once

namespace pagefuse::cuda::ptx {

// The lane's and the thread's number, read again wherever they are needed: what is computed of them takes no registers in between.
__device__ inline int LaneIndex() {
  int index;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(index));
  return index;
}
__device__ inline int ThreadIndex() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace pagefuse::cuda::ptx
