// SPDX-License-Identifier: Apache-2.0
#include "device_code.h"

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int kThreads = 512;

__device__ uint32_t Hash(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 16);
}

// Of [-1, 1).
__device__ float Signed(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f; }

__device__ uint32_t WordOf(Fill fill, uint32_t bits) {
  switch (fill) {
    case Fill::kZeros:
      return 0;
    case Fill::kFloat8:
      return bits & 0xBFBFBFBF;  // no exponent of the upper half, where NaN is
    case Fill::kFloat:
      return __float_as_uint(Signed(bits));
    case Fill::kPositive:
      return __float_as_uint(0.015f + 0.005f * Signed(bits));
    case Fill::kBfloat16:
      return (__float_as_uint(Signed(bits)) & 0xFFFF0000) |
             __float_as_uint(Signed(bits * 2654435761u)) >> 16;
    case Fill::kHalfBytes:
      return (bits & 0x03FF03FF) | 0x3C003C00;
    default:
      return bits;
  }
}

__global__ void FillKernel(uint32_t* to, size_t words, Fill fill, uint32_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words; i += stride) {
    to[i] = WordOf(fill, Hash(i + (uint64_t{seed} << 40)));
  }
}

template <int kUnrolled>
__global__ void __launch_bounds__(kThreads) CopyKernel(const uint4* from, uint4* to, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + (kUnrolled - 1) * stride < n; i += kUnrolled * stride) {
    uint4 x[kUnrolled];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) x[u] = __ldcs(from + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) __stcs(to + i + u * stride, x[u]);
  }
  for (; i < n; i += stride) to[i] = from[i];
}

template <int kUnrolled>
__global__ void __launch_bounds__(kThreads)
    ReadKernel(const uint4* from, uint32_t* sink, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  uint32_t sum = 0;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + (kUnrolled - 1) * stride < n; i += kUnrolled * stride) {
    uint4 x[kUnrolled];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) x[u] = __ldcs(from + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) sum += x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
  }
  for (; i < n; i += stride) {
    const uint4 x = __ldcs(from + i);
    sum += x.x ^ x.y ^ x.z ^ x.w;
  }
  if (sum == 0x9E3779B9) *sink = sum;  // keeps the loads
}

__global__ void AddOneKernel(uint32_t* number) {
  cuda::ptx::LetNextKernelBegin();
  cuda::ptx::WaitForKernelBefore();
  *number += 1;
}

}  // namespace

cuda::Error FillRandom(void* to, size_t bytes, Fill fill, uint32_t seed, cuda::Stream stream) {
  if (fill == Fill::kZeros) return cudaMemsetAsync(to, 0, bytes, stream);
  FillKernel<<<1024, kThreads, 0, stream>>>(static_cast<uint32_t*>(to), bytes / 4, fill, seed);
  return cudaGetLastError();
}

cuda::Error CopyBytes(const void* from, void* to, size_t bytes, int blocks, cuda::Stream stream) {
  CopyKernel<4><<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                 static_cast<uint4*>(to), bytes / 16);
  return cudaGetLastError();
}

cuda::Error ReadBytes(const void* from, void* sink, size_t bytes, int blocks, cuda::Stream stream) {
  ReadKernel<8><<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                 static_cast<uint32_t*>(sink), bytes / 16);
  return cudaGetLastError();
}

cuda::Error AddOne(uint32_t* number, bool programmatic, cuda::Stream stream) {
  if (programmatic) return cuda::Launch(AddOneKernel, {.grid = 1, .block = 32}, stream, number);
  AddOneKernel<<<1, 32, 0, stream>>>(number);
  return cudaGetLastError();
}

}  // namespace pagefuse::cuda_bench
