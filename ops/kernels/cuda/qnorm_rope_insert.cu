// SPDX-License-Identifier: Apache-2.0
// QNormRopeKvInsert: a warp a row, the query's heads of a token first and its key row last; floats between what is read and what is stored,
// in registers where rows are those of the published format.
#include "pagefuse/ops/kernels/cuda/grouped_floats.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/qnorm_rope_insert.h"
#include "pagefuse/ops/kernels/cuda/register_codes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"

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
  TokenRotation rotation(p.query, token);
  LoadInsertRow(static_cast<const T*>(p.query.source) + p.query.Row(token, head) * n, n, x);
  rotation.LoadTurns();
  NormFloats(x, n, p.epsilon, [](int) { return 1.0f; });
  rotation.Rotate(x);
  if (p.storage == QNormStorage::kFp8) {
    return StoreCodes(x, n, *p.query_factor, static_cast<uint8_t*>(p.query_out) + at);
  }
  StoreRow(to, n, [=](int d) { return T(x[d]); });
}

template <typename T>
__device__ void InsertKey(const QNormRopeInsert& p, int64_t token, float* x) {
  if (token >= p.slots.mapping.tokens) return;
  const int n = p.query.size;
  const SlotMapping& mapping = p.slots.mapping;
  const int64_t fetched = FetchIndex(mapping.slots, mapping.is_int64, token);
  TokenRotation rotation(p.query, token);
  LoadInsertRow(static_cast<const T*>(p.kv) + token * n, n, x);
  rotation.LoadTurns();
  const int64_t slot = p.slots.OfToken(token, fetched);
  if (slot < 0) return;
  const RowAddress row = RowOfSlot(p.rows, slot);
  rotation.Rotate(x);
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

// --- rows in registers ---

constexpr int kSize = V4Row::kSize;

// Normed and rotated, to the query's type.
__device__ void StoreQueryPiece(const QNormRopeInsert& p, int64_t row, float (&x)[kPiece],
                                const PieceRotation</*kInterleaved=*/true>& rotation) {
  const float factor = NormFactor<kSize>(x, p.epsilon);
#pragma unroll
  for (float& own : x) own = __fmul_rn(own, factor);
  rotation.Rotate(x, /*rounds=*/false);
  uint32_t words[kPiece / 2];
#pragma unroll
  for (int i = 0; i < kPiece / 2; ++i) words[i] = PackBfloats(x[2 * i], x[2 * i + 1]);
  StoreWords(words, static_cast<Bfloat16*>(p.query_out) + row * kSize + LaneId() * kPiece);
}

// Head `heads` is the key row.
__global__ void __launch_bounds__(kHeadWarps* kWarp)
    QNormRopeRegisters(const __grid_constant__ QNormRopeInsert p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int own = LaneId() * kPiece, num_heads = p.query.heads;
  const SlotMapping& mapping = p.slots.mapping;
  const int64_t fetched =
      token < mapping.tokens ? FetchIndex(mapping.slots, mapping.is_int64, token) : -1;
  const auto load = [&](int head) {
    const void* rows = head < num_heads ? p.query.source : p.kv;
    const int64_t row = head < num_heads ? p.query.Row(token, head) : token;
    return LoadPiece(static_cast<const Bfloat16*>(rows) + row * kSize + own);
  };
  const OwnHeads<kSize> heads(num_heads + 1);
  const auto first = heads.LoadFirst(load);
  const PieceRotation</*kInterleaved=*/true> rotation(p.query.rotation, TableRowOf(p.query, token),
                                                      own);
  heads.ForEach(first, load, [&](int head, bool, const RowPiece<Bfloat16>& piece) {
    float x[kPiece];
    Widen(piece, x);
    if (head < num_heads) return StoreQueryPiece(p, token * p.padded_heads + head, x, rotation);
    const int64_t slot = fetched < 0 ? -1 : p.slots.OfToken(token, fetched);
    if (slot < 0) return;
    rotation.Rotate(x, /*rounds=*/true);
    StoreRoundedPiece<V4Row>(p.row_format, x, LaneId(), /*is_one=*/true, RowOfSlot(p.rows, slot));
  });
  const OwnHeads<kSize> zeros(p.padded_heads - num_heads);
  zeros.ForEach(
      0, [](int) { return 0; },
      [&](int head, bool, int) {
        const int64_t row = token * p.padded_heads + num_heads + head;
        const uint32_t words[kPiece / 2] = {};
        StoreWords(words, static_cast<Bfloat16*>(p.query_out) + row * kSize + own);
      });
}

bool SuitsRegisters(const QNormRopeInsert& call) {
  constexpr int64_t kBytes = sizeof(uint4);
  const RotatedRows& query = call.query;
  return query.type == DataType::kBfloat16 && query.size == kSize &&
         call.storage == QNormStorage::kGrouped && V4Row::Is(call.row_format) &&
         call.row_format.elements() == kSize && query.rotation.interleaved &&
         RotatesPieces(query.rotation) && StoresPieces(call.row_format, call.rows) &&
         IsAligned(query.source, kBytes) && IsAligned(call.kv, kBytes) &&
         IsAligned(call.query_out, kBytes);
}

}  // namespace

Error LaunchQNormRopeInsert(const QNormRopeInsert& call, Stream stream) {
  if (call.query.tokens == 0 || call.query.size == 0) return 0;
  if (call.query.size > kLongestInsertRow) return kTooLarge;
  if (SuitsRegisters(call)) {
    return Launch(QNormRopeRegisters, HeadsGrid(call.query.tokens, call.query.heads + 1, 1), stream,
                  call);
  }
  const LaunchShape shape =
      InsertGridFor(call.query.tokens, call.padded_heads + 1, call.query.size);
  return ForRowType(call.query.type, [&]<typename T>() {
    return Launch(QNormRopeInsertKernel<T>, shape, stream, call);
  });
}

}  // namespace pagefuse::cuda
