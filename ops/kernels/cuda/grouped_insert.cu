// SPDX-License-Identifier: Apache-2.0
// Inserts of one row a token: a warp a row.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_insert.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kMostWarps = 4;  // of a block

__device__ int WarpOfBlock() { return static_cast<int>(threadIdx.x) / kWarp; }
// The token of this warp, which may be past the last one.
__device__ int64_t TokenOfWarp() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
}

LaunchShape ShapeFor(int64_t tokens, int warps, size_t warp_bytes) {
  return {.grid = static_cast<unsigned>(CeilDiv(tokens, warps)),
          .block = static_cast<unsigned>(warps * kWarp),
          .shared_bytes = warps * warp_bytes};
}

template <typename T>
__global__ void GroupedInsertKernel(const __grid_constant__ GroupedInsert insert) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  const auto* x = reinterpret_cast<const T*>(insert.coded + token * insert.coded_stride);
  EncodeRowOfGroups(insert.format, x, insert.plain + token * insert.plain_stride,
                    insert.rows.AtSlot(slot, 0));
}

// HadamardRotate of formats/hadamard.h.
__device__ void HadamardRotate(float* x, int n) {
  HadamardTransform(x, n);
  const float entry = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(n)));
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(x[d], entry);
  __syncwarp();
}

template <typename T>
__global__ void RotatedInsertKernel(const __grid_constant__ GroupedInsert insert) {
  extern __shared__ float4 rotated_rows[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  const int size = static_cast<int>(insert.format.coded);
  float* x = reinterpret_cast<float*>(rotated_rows + WarpOfBlock() * CeilDiv(size, 4));
  LoadRow(reinterpret_cast<const T*>(insert.coded + token * insert.coded_stride), size, x);
  HadamardRotate(x, size);
  RoundRowThrough<Bfloat16>(x, size);
  EncodeRowOfGroups(insert.format, x, insert.plain + token * insert.plain_stride,
                    insert.rows.AtSlot(slot, 0));
}

template <typename T>
Error LaunchFrom(const GroupedInsert& insert, Stream stream) {
  const int64_t tokens = insert.slots.mapping.tokens;
  if (!insert.hadamard) {
    return Launch(GroupedInsertKernel<T>, ShapeFor(tokens, kMostWarps, 0), stream, insert);
  }
  constexpr int64_t kSharedBytes = 48 << 10;
  const int64_t row_bytes = CeilDiv(insert.format.coded, 4) * int64_t{sizeof(float4)};
  const auto warps = static_cast<int>(std::clamp<int64_t>(kSharedBytes / row_bytes, 1, kMostWarps));
  const LaunchShape shape = ShapeFor(tokens, warps, static_cast<size_t>(row_bytes));
  return Launch(RotatedInsertKernel<T>, shape, stream, insert);
}

__global__ void JoinedInsertKernel(const __grid_constant__ JoinedInsert insert) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  uint8_t* to = insert.rows.AtSlot(slot, 0).data;
  for (const JoinedInsert::Part& part : insert.parts) {
    CopyBytes(part.rows + token * part.bytes, part.bytes, to);
    to += part.bytes;
  }
}

}  // namespace

Error LaunchGroupedInsert(const GroupedInsert& insert, Stream stream) {
  if (insert.slots.mapping.tokens == 0) return 0;
  if (insert.hadamard && insert.format.coded > kLongestHadamardRow) return kTooLarge;
  switch (insert.source_type) {
    case DataType::kFloat:
      return LaunchFrom<float>(insert, stream);
    case DataType::kFloat16:
      return LaunchFrom<Float16>(insert, stream);
    case DataType::kBfloat16:
      return LaunchFrom<Bfloat16>(insert, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

Error LaunchJoinedInsert(const JoinedInsert& insert, Stream stream) {
  if (insert.slots.mapping.tokens == 0) return 0;
  const LaunchShape shape = ShapeFor(insert.slots.mapping.tokens, kMostWarps, 0);
  return Launch(JoinedInsertKernel, shape, stream, insert);
}

}  // namespace pagefuse::cuda
