// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert: a warp a (token, head) row of query, key or value; floats between what is read and what is stored. The CPU multiplies and
// adds apart, so these do.
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/rope_cache_insert.h"
#include "pagefuse/ops/kernels/cuda/rope_insert_plain.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"

namespace pagefuse::cuda {
namespace {

// Elements LaneId() + kWarp * k of a row, all on their way at once.
template <int kHeld>
struct LaneFloats {
  float at[kHeld];

  __device__ void Load(DataType type, const void* row, int n) {
    switch (type) {
      case DataType::kFloat16:
        return LoadFrom(static_cast<const Half*>(row), n);
      case DataType::kBfloat16:
        return LoadFrom(static_cast<const Bfloat*>(row), n);
      default:
        return LoadFrom(static_cast<const float*>(row), n);
    }
  }

 private:
  template <typename T>
  __device__ void LoadFrom(const T* row, int n) {
    T elements[kHeld] = {};
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (LaneId() + kWarp * k < n) elements[k] = row[LaneId() + kWarp * k];
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) at[k] = ToFloat(elements[k]);
  }
};

// Of a lane: all that rows of 256 elements need.
constexpr int kWeights = 8, kPairs = 4;
using LaneWeights = LaneFloats<kWeights>;

__device__ const void* ElementAt(DataType type, const void* elements, int64_t i) {
  return static_cast<const uint8_t*>(elements) + i * (type == DataType::kFloat ? 4 : 2);
}

// NormRow of rows/rope_row.h. `held` are the first weights.
__device__ void NormRow(const RopeCacheInsert& p, LaneWeights held, const void* weights, int n,
                        float* x) {
  const float mean = __fdiv_rn(SumOfSquares(x, n), static_cast<float>(n));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
  __syncwarp();
  for (int first = 0;;) {
#pragma unroll
    for (int k = 0; k < kWeights; ++k) {
      const int d = first + LaneId() + kWarp * k;
      if (d < n) x[d] = __fmul_rn(__fmul_rn(x[d], inverse), held.at[k]);
    }
    first += kWarp * kWeights;
    if (first >= n) break;
    held.Load(p.weight_type, ElementAt(p.weight_type, weights, first), n - first);
  }
  __syncwarp();
}

// The row of the tables for a token; none rotates nothing.
__device__ int64_t TableRowOf(const RopeCacheInsert& p, int64_t token) {
  if (p.positions == nullptr) return token;
  return FetchIndex(p.positions, p.positions_int64, token);
}

// Cosines and sines of pairs.
struct LanePairs {
  LaneFloats<kPairs> cos, sin;

  __device__ void Load(const RopeCacheInsert& p, int64_t row, int first) {
    const int64_t at = row * p.pairs + first;
    cos.Load(p.table_type, ElementAt(p.table_type, p.cos, at), p.pairs - first);
    sin.Load(p.table_type, ElementAt(p.table_type, p.sin, at), p.pairs - first);
  }
};

// RotateRow of rows/rope_row.h. `held` are the first pairs.
__device__ void RotateRow(const RopeCacheInsert& p, LanePairs held, int64_t row, float* x) {
  for (int begin = 0;;) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int i = begin + LaneId() + kWarp * k;
      if (i >= p.pairs) continue;
      const int first = p.offset + (p.interleaved ? 2 * i : i);
      const int second = first + (p.interleaved ? 1 : p.pairs);
      const float cos = held.cos.at[k], sin = held.sin.at[k];
      const float a = x[first];
      const float b = x[second];
      x[first] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
      x[second] = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
    }
    begin += kWarp * kPairs;
    if (begin >= p.pairs) break;
    held.Load(p, row, begin);
  }
  __syncwarp();
}

// A row of query or key in shared memory: what it is rotated by comes while it is normed.
__device__ void NormAndRotate(const RopeCacheInsert& p, int64_t table_row,
                              const LaneWeights& held_weights, const void* weights, int n,
                              float* x) {
  const bool rotates = table_row >= 0 && table_row < p.table_rows;  // the host checked
  LanePairs pairs;
  if (rotates) pairs.Load(p, table_row, 0);
  if (weights != nullptr) NormRow(p, held_weights, weights, n, x);
  if (rotates) RotateRow(p, pairs, table_row, x);
}

template <typename T>
__global__ void RopeCacheInsertKernel(const __grid_constant__ RopeCacheInsert p, int longest_row) {
  ptx::LetNextKernelBegin();
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int row = RowOfWarp(), key_row = row - p.heads, value_row = key_row - p.key.heads;
  const bool is_query = key_row < 0;
  const void* weights = is_query ? p.q_norm : value_row < 0 ? p.k_norm : nullptr;
  const int n = is_query ? p.size : p.key.head_size;
  LaneWeights held = {};
  if (weights != nullptr) held.Load(p.weight_type, weights, n);
  if (p.constant_weights) ptx::WaitForKernelBefore();
  const TokenSlot slot(p.slots, token, NumSlots(p.key.rows));
  const int64_t table_row = TableRowOf(p, token);
  float* x = FloatsOfWarp(longest_row);
  if (value_row >= 0) {
    if (value_row < p.value.heads) InsertUnchangedRow<T>(p.value, token, value_row, slot, x);
    return;
  }
  const int64_t at = (token * p.heads + row) * p.size;  // of a query
  LoadInsertRow(
      is_query ? static_cast<const T*>(p.query) + at : SourceRow<T>(p.key, token, key_row), n, x);
  NormAndRotate(p, table_row, held, weights, n, x);
  if (is_query) {
    StoreRow(static_cast<T*>(p.query_out) + at, n, [=](int d) { return T(x[d]); });
  } else {
    StoreInSlot(p.key, key_row, slot, x);
  }
}

template <typename T>
Error LaunchFrom(const RopeCacheInsert& p, int longest, Stream stream) {
  if (SuitsPlainInsert(p)) return LaunchPlainInsert<T>(p, stream);
  const int rows = p.heads + p.key.heads + p.value.heads;
  const LaunchShape shape = InsertGridFor(p.tokens, rows, longest);
  return Launch(RopeCacheInsertKernel<T>, shape, stream, p, longest);
}

}  // namespace

Error LaunchRopeCacheInsert(const RopeCacheInsert& p, Stream stream) {
  const int longest = std::max({p.size, p.key.head_size, p.value.head_size});
  if (p.tokens == 0 || longest == 0) return 0;
  if (longest > kLongestInsertRow) return cudaErrorInvalidValue;
  return ForRowType(p.type, [&]<typename T>() { return LaunchFrom<T>(p, longest, stream); });
}

}  // namespace pagefuse::cuda
