// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert: a warp a (token, head) row of query, key or value; floats between what is read and what is stored. The CPU multiplies and
// adds apart, so these do.
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/rope_cache_insert.h"

namespace pagefuse::cuda {
namespace {

__device__ float LoadFloatOf(DataType type, const void* from, int64_t i) {
  switch (type) {
    case DataType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(from)[i]);
    case DataType::kBfloat16:
      return static_cast<float>(static_cast<const Bfloat16*>(from)[i]);
    default:
      return static_cast<const float*>(from)[i];
  }
}

// NormRow of rows/rope_row.h.
__device__ void NormRow(const RopeCacheInsert& p, const void* weight, int n, float* x) {
  const float mean = __fdiv_rn(SumOfSquares(x, n), static_cast<float>(n));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
  __syncwarp();
  for (int d = LaneId(); d < n; d += kWarp) {
    x[d] = __fmul_rn(__fmul_rn(x[d], inverse), LoadFloatOf(p.weight_type, weight, d));
  }
  __syncwarp();
}

// RotateRow of rows/rope_row.h.
__device__ void RotateRow(const RopeCacheInsert& p, int64_t token, float* x) {
  int64_t position = token;
  if (p.positions != nullptr) {
    position = p.positions_int64 ? static_cast<const int64_t*>(p.positions)[token]
                                 : static_cast<const int32_t*>(p.positions)[token];
  }
  if (position < 0 || position >= p.table_rows) return;  // the host checked
  const int64_t row = position * p.pairs;
  for (int i = LaneId(); i < p.pairs; i += kWarp) {
    const int first = p.offset + (p.interleaved ? 2 * i : i);
    const int second = first + (p.interleaved ? 1 : p.pairs);
    const float cos = LoadFloatOf(p.table_type, p.cos, row + i);
    const float sin = LoadFloatOf(p.table_type, p.sin, row + i);
    const float a = x[first];
    const float b = x[second];
    x[first] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
    x[second] = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
  }
  __syncwarp();
}

__device__ void NormAndRotate(const RopeCacheInsert& p, int64_t token, const void* weight, int n,
                              float* x) {
  if (weight != nullptr) NormRow(p, weight, n, x);
  RotateRow(p, token, x);
}

template <typename T>
__device__ void RotateQuery(const RopeCacheInsert& p, int64_t token, int head, float* x) {
  const int64_t at = (token * p.heads + head) * p.size;
  LoadRow(static_cast<const T*>(p.query) + at, p.size, x);
  NormAndRotate(p, token, p.q_norm, p.size, x);
  StoreRow(static_cast<T*>(p.query_out) + at, p.size, [=](int d) { return T(x[d]); });
}

template <typename T>
__global__ void RopeCacheInsertKernel(const __grid_constant__ RopeCacheInsert p, int longest_row) {
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int64_t slot = SlotToWrite(p.slots, token, NumSlots(p.key.rows));
  float* x = FloatsOfWarp(longest_row);
  int row = RowOfWarp();
  if (row < p.heads) return RotateQuery<T>(p, token, row, x);
  row -= p.heads;
  if (slot < 0) return;
  if (row < p.key.heads) {
    InsertRow<T>(p.key, token, row, slot, x,
                 [&](float* y) { NormAndRotate(p, token, p.k_norm, p.key.head_size, y); });
    return;
  }
  row -= p.key.heads;
  if (row < p.value.heads) InsertUnchangedRow<T>(p.value, token, row, slot, x);
}

template <typename T>
Error LaunchFrom(const RopeCacheInsert& p, int longest, Stream stream) {
  const int rows = p.heads + p.key.heads + p.value.heads;
  const LaunchShape shape = InsertGridFor(p.tokens, rows, longest);
  return Launch(RopeCacheInsertKernel<T>, shape, stream, p, longest);
}

}  // namespace

Error LaunchRopeCacheInsert(const RopeCacheInsert& p, Stream stream) {
  const int longest = std::max({p.size, p.key.head_size, p.value.head_size});
  if (p.tokens == 0 || longest == 0) return 0;
  if (longest > kLongestInsertRow) return cudaErrorInvalidValue;
  switch (p.type) {
    case DataType::kFloat:
      return LaunchFrom<float>(p, longest, stream);
    case DataType::kFloat16:
      return LaunchFrom<Float16>(p, longest, stream);
    case DataType::kBfloat16:
      return LaunchFrom<Bfloat16>(p, longest, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pagefuse::cuda
