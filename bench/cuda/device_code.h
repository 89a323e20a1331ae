// SPDX-License-Identifier: Apache-2.0
// Kernels of the benchmarks themselves: what a machine can do at most.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda_bench {

// What random memory holds.
enum class Fill {
  kZeros,
  kBytes,      // any
  kFloat8,     // e4m3fn codes of numbers below 2
  kFloat,      // of [-1, 1)
  kPositive,   // floats of [0.01, 0.02)
  kBfloat16,   // of [-1, 1)
  kHalfBytes,  // bytes that are half floats of [1, 2) in pairs
};

cuda::Error FillRandom(void* to, size_t bytes, Fill fill, uint32_t seed, cuda::Stream stream);
// 16 bytes a thread at a time, by `blocks` blocks. `bytes` is a multiple of 16.
cuda::Error CopyBytes(const void* from, void* to, size_t bytes, int blocks, cuda::Stream stream);
cuda::Error ReadBytes(const void* from, void* sink, size_t bytes, int blocks, cuda::Stream stream);
// Adds one to a number; `programmatic`: may begin while the kernel before ends.
cuda::Error AddOne(uint32_t* number, bool programmatic, cuda::Stream stream);

}  // namespace pagefuse::cuda_bench
