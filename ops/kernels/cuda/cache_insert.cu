// SPDX-License-Identifier: Apache-2.0
// PagedCacheInsert: a warp a (token, head) row of keys or values, but for rows that are only copied and those that are encoded in registers.
#include "pagefuse/ops/kernels/cuda/insert_bytes.h"
#include "pagefuse/ops/kernels/cuda/insert_copy.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"

namespace pagefuse::cuda {
namespace {

template <typename T>
__global__ void CacheInsertKernel(const __grid_constant__ CacheInsert insert, int longest_row) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const TokenSlot slot(insert.slots, token, NumSlots(insert.key.rows));
  const int row = RowOfWarp();
  if (row >= insert.key.heads + insert.value.heads) return;
  float* x = FloatsOfWarp(longest_row);
  if (row < insert.key.heads) {
    InsertUnchangedRow<T>(insert.key, token, row, slot, x);
  } else {
    InsertUnchangedRow<T>(insert.value, token, row - insert.key.heads, slot, x);
  }
}

template <typename T>
Error LaunchFrom(const CacheInsert& insert, Stream stream) {
  if (SuitsCopyInsert(insert, sizeof(T))) return LaunchCopyInsert(insert, sizeof(T), stream);
  if constexpr (sizeof(T) > sizeof(uint8_t)) {
    if (SuitsByteInsert(insert)) return LaunchByteInsert<T>(insert, stream);
  }
  const int longest = std::max(insert.key.head_size, insert.value.head_size);
  const int rows = insert.key.heads + insert.value.heads;
  const LaunchShape shape = InsertGridFor(insert.slots.tokens, rows, longest);
  return Launch(CacheInsertKernel<T>, shape, stream, insert, longest);
}

}  // namespace

Error LaunchCacheInsert(const CacheInsert& insert, Stream stream) {
  const int longest = std::max(insert.key.head_size, insert.value.head_size);
  if (insert.slots.tokens == 0 || NumSlots(insert.key.rows) == 0 || longest == 0) return 0;
  if (longest > kLongestInsertRow) return cudaErrorInvalidValue;
  const DataType type = insert.key.source_type;
  if (type == DataType::kFloat8E4M3FN) return LaunchFrom<Float8E4M3FN>(insert, stream);
  return ForRowType(type, [&]<typename T>() { return LaunchFrom<T>(insert, stream); });
}

}  // namespace pagefuse::cuda
