// SPDX-License-Identifier: Apache-2.0
// QNormRopeKvInsert: a warp a row, the query's heads of a token first and its key row last; floats between what is read and what is stored.
#include "pagefuse/ops/kernels/cuda/grouped_floats.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/qnorm_rope_insert.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"

namespace pagefuse::cuda {
namespace {

__device__ void StoreCodes(const float* x, int n, float factor, uint8_t* to) {
  StoreRow(to, n, [=](int d) { return EncodeFloat<E4M3FNFormat>(__fmul_rn(x[d], factor)); });
}

template <typename T>
__device__ void StoreQuery(const QNormRopeInsert& p, int64_t token, int head, float* x) {
  const int n = p.query.size;
  const int64_t at = (token * p.padded_heads + head) * n;
  T* to = static_cast<T*>(p.query_out) + at;
  if (head >= p.query.heads) return StoreRow(to, n, [](int) { return T(0.0f); });
  LoadRow(static_cast<const T*>(p.query.source) + p.query.Row(token, head) * n, n, x);
  NormFloats(x, n, p.epsilon, [](int) { return 1.0f; });
  RotateByPosition(p.query, token, x);
  if (p.storage == QNormStorage::kFp8) {
    return StoreCodes(x, n, *p.query_factor, static_cast<uint8_t*>(p.query_out) + at);
  }
  StoreRow(to, n, [=](int d) { return T(x[d]); });
}

template <typename T>
__device__ void InsertKey(const QNormRopeInsert& p, int64_t token, float* x) {
  if (token >= p.slots.mapping.tokens) return;
  const int64_t slot = p.slots.OfToken(token);
  if (slot < 0) return;
  const int n = p.query.size;
  const RowAddress row = p.rows.AtSlot(slot, 0);
  LoadRow(static_cast<const T*>(p.kv) + token * n, n, x);
  RotateByPosition(p.query, token, x);
  switch (p.storage) {
    case QNormStorage::kFp8:
      return StoreCodes(x, n, __fdiv_rn(1.0f, *p.kv_scale), row.data);
    case QNormStorage::kPlain:
      return EncodePlainRow(p.row_type, x, n, row.data);
    case QNormStorage::kGrouped:
      RoundRowThrough<Bfloat16>(x, n);
      return StoreGroupedFloats(p.row_format, x, row);
  }
}

template <typename T>
__global__ void QNormRopeInsertKernel(const __grid_constant__ QNormRopeInsert p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int row = RowOfWarp();
  float* x = FloatsOfWarp(p.query.size);
  if (row < p.padded_heads) return StoreQuery<T>(p, token, row, x);
  if (row == p.padded_heads) InsertKey<T>(p, token, x);
}

}  // namespace

Error LaunchQNormRopeInsert(const QNormRopeInsert& call, Stream stream) {
  if (call.query.tokens == 0 || call.query.size == 0) return 0;
  if (call.query.size > kLongestInsertRow) return kTooLarge;
  const LaunchShape shape =
      InsertGridFor(call.query.tokens, call.padded_heads + 1, call.query.size);
  switch (call.query.type) {
    case DataType::kFloat:
      return Launch(QNormRopeInsertKernel<float>, shape, stream, call);
    case DataType::kFloat16:
      return Launch(QNormRopeInsertKernel<Float16>, shape, stream, call);
    case DataType::kBfloat16:
      return Launch(QNormRopeInsertKernel<Bfloat16>, shape, stream, call);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pagefuse::cuda
