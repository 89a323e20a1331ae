// SPDX-License-Identifier: Apache-2.0
// Instructions that C++ has no name for, one inline function each. Device code alone.
#pragma once

#include <cstdint>

namespace pagefuse::cuda::ptx {

// --- programmatic dependent launch ---
// A kernel that was launched so begins while the one before it ends. Nothing that this one made may be
// read, and nothing that it may still read be written, before WaitForKernelBefore. Without such a launch,
// and before sm_90, both do nothing.

// Lets the next kernel begin, as soon as all blocks of this one have come here or ended.
__device__ inline void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the kernel before has ended and its writes are seen.
__device__ inline void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- copies from global to shared memory that go on beside the kernel ---

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// 16 bytes, both sides aligned to 16; of them `bytes` (0 to 16) are read, and the rest is 0.
__device__ inline void CopyAsync16(void* shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

// The same through the first cache, for what other blocks read too.
__device__ inline void CopyAsync16Cached(void* shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

// 4 bytes in the same way, of which 4 or 0 are read.
__device__ inline void CopyAsync4(void* shared, const void* global, int bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

// What was copied since the last call becomes a group.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all groups of this thread but the last `kLeft` have come.
template <int kLeft>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// --- tensor cores ---

// Four 8x8 matrices of 16-bit elements: lane i tells where row i % 8 of matrix i / 8 lies, 16 bytes
// aligned to 16. Register j of lane i has elements 2 * (i % 4) and the next of row i / 4 of matrix j.
__device__ inline void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// c += a * b of bfloat16, summed in float. With g = lane / 4 and t = lane % 4, as pairs of neighbours:
//   a [16, 16]: rows g, g + 8 at columns 2t, then both at columns 2t + 8
//   b [16, 8]: rows 2t, then 2t + 8, of column g
//   c [16, 8]: columns 2t, 2t + 1 of row g, then of row g + 8
__device__ inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a * b of int8, exactly. As bytes, four neighbours a register:
//   a [16, 32]: rows g, g + 8 at columns 4t, then both at columns 4t + 16
//   b [32, 8]: rows 4t, then 4t + 16, of column g
//   c [16, 8]: as above
__device__ inline void MmaInt8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace pagefuse::cuda::ptx
