// SPDX-License-Identifier: Apache-2.0
// Instructions of the decode kernels: products of 16-bit elements, and copies of pages. Device code alone.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "pagefuse/ops/kernels/cuda/mqa_logits_ptx.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda::ptx {

// A page of a cache described as [block, span, head, token, 128 bytes]: heads from `head` on, all spans and tokens.
__device__ inline void CopyPage(uint32_t to, const CUtensorMap* map, int head, int block,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %2, %3, %2, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(0), "r"(head), "r"(block), "r"(barrier)
      : "memory");
}

// c += a b of halves, or of bfloat16, summed in float; fragments.h draws them.
__device__ inline void MultiplyHalves(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void MultiplyBfloats(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of floats, of which 11 bits count, eight columns of A: a0 and a1 are of column t, a2 and a3 of column t + 4, b0 and b1 of these rows.
__device__ inline void MultiplyFloats(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of eight columns of A: a0 is row g, a1 row g + 8, b rows 2t of column g.
__device__ inline void MultiplyHalves8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// Of eight rows of eight 16-bit elements, lane (g, t) with elements 2t and 2t + 1 of row g, the columns in the same way.
__device__ inline uint32_t Transpose(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
__device__ inline uint32_t SquareHalves(uint32_t pair) {
  uint32_t result;
  asm("mul.f16x2 %0, %1, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Registers go from warp groups that load to those that compute, 16 warps beside four: in builds for the very architecture that can.
template <bool takes>
__device__ void MoveRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (takes) {
    TakeRegisters<112>();
  } else {
    GiveRegisters<32>();
  }
#endif
}

// Approximations good to 2^-22; subnormal numbers are 0.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ inline float Log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ inline float InverseRoot(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// --- clusters: blocks that run at the same time and read each other's shared memory ---

// Where another block of the cluster has what this one has at `address`. It must not have ended when it is read.
__device__ inline uint32_t AddressOfBlock(uint32_t address, int block) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(block));
  return result;
}
// Sends numbers to a block's shared memory, and their bytes to its barrier, which shows when they are there.
__device__ inline void SendPair(uint32_t to, float2 v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
      "[%0], {%1, %2}, [%3];" ::"r"(to),
      "f"(v.x), "f"(v.y), "r"(barrier)
      : "memory");
}
__device__ inline void SendFour(uint32_t to, float4 v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}
// WaitForCluster of cluster.h in two steps. Arriving shows the others nothing but barriers that were made and fenced. Threads that ended count as
// arrived.
__device__ inline void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void AwaitCluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// WaitBarrier for what other blocks sent.
__device__ inline void AwaitSent(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@p bra.uni E;\nbra.uni W;\nE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// A line goes to the second cache, which all multiprocessors share: its bytes may be written before they are read.
__device__ inline void FetchLine(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Plain loads, which the compiler may move, though not across waits for barriers.
template <typename T>
__device__ T LoadShared(uint32_t address) {
  return *reinterpret_cast<const T*>(__cvta_shared_to_generic(address));
}
template <typename T>
__device__ void StoreShared(uint32_t address, T value) {
  *reinterpret_cast<T*>(__cvta_shared_to_generic(address)) = value;
}

}  // namespace pagefuse::cuda::ptx
