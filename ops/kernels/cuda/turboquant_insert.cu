// SPDX-License-Identifier: Apache-2.0
// TurboQuantInsert: a warp a key or a value; the bytes of EncodeTurboQuantKey and EncodeTurboQuantValue.
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/matrix_rotation.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"
#include "pagefuse/ops/kernels/cuda/turboquant.h"

namespace pagefuse::cuda {
namespace {

// x rotated, in place or in y; sums in double, as RotateTurboQuant has them.
__device__ float* Rotate(const TurboQuantInsert& p, float* x, float* y) {
  const int n = static_cast<int>(p.format.head_size);
  if (p.rotation != nullptr) {
    RotateByMatrix<double>(p.rotation, x, n, y);
    return y;
  }
  HadamardRotateOwn(x, n);
  return x;
}

// Changes x; y is of the same size.
__device__ void EncodeKey(const TurboQuantInsert& p, float* x, float* y, uint8_t* slot) {
  const int n = static_cast<int>(p.format.head_size);
  if (!p.format.has_centroids()) {
    return StoreRow(slot, n, [=](int d) { return EncodeFloat<E4M3FNFormat>(x[d]); });
  }
  const float norm = __fsqrt_rn(SumOfSquares(x, n));
  const float divisor = __fadd_rn(norm, kTurboQuantNormFloor);
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fdiv_rn(x[d], divisor);
  __syncwarp();
  float* rotated = Rotate(p, x, y);
  const float* centroids = p.centroids.values();
  const int borders = static_cast<int>(p.format.NumCentroids()) - 1;
  for (int d = LaneId(); d < n; d += kWarp) {
    int code = 0;
    for (int i = 0; i < borders; ++i) {
      const float border = __fmul_rn(__fadd_rn(centroids[i], centroids[i + 1]), 0.5f);
      code += rotated[d] >= border ? 1 : 0;
    }
    rotated[d] = static_cast<float>(code);
  }
  __syncwarp();
  StoreStream(rotated, p.format.key_bits, n, slot);
  StoreHalfBytes(norm, slot + p.format.KeyDataBytes());
}

// Changes x.
__device__ void EncodeValue(const TurboQuantInsert& p, float* x, uint8_t* slot) {
  const int n = static_cast<int>(p.format.head_size);
  const float most = static_cast<float>((1 << p.format.value_bits) - 1);
  const RowRange range = RangeOf(x, n);
  float scale = __fdiv_rn(__fsub_rn(range.high, range.low), most);
  if (!(scale > kTurboQuantScaleFloor)) scale = kTurboQuantScaleFloor;
  __syncwarp();  // all have read the first element
  for (int d = LaneId(); d < n; d += kWarp) {
    const float place = __fadd_rn(__fdiv_rn(__fsub_rn(x[d], range.low), scale), 0.5f);
    x[d] = place > 0 ? truncf(fminf(place, most)) : 0.0f;  // 0 for NaN too
  }
  __syncwarp();
  uint8_t* to = slot + p.format.KeyBytes();
  StoreStream(x, p.format.value_bits, n, to);
  StoreHalfBytes(scale, to + p.format.ValueDataBytes());
  StoreHalfBytes(range.low, to + p.format.ValueDataBytes() + 2);
}

template <typename T>
__global__ void TurboQuantInsertKernel(const __grid_constant__ TurboQuantInsert p, int row_floats) {
  const int n = static_cast<int>(p.format.head_size);
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const TokenSlot token_slot(p.slots, token, NumSlots(p.rows));
  const int row = RowOfWarp();
  if (row >= 2 * p.heads) return;
  float* x = FloatsOfWarp(row_floats);
  const bool is_key = row < p.heads;
  const int head = is_key ? row : row - p.heads;
  const T* source = static_cast<const T*>(is_key ? p.key : p.value) + (token * p.heads + head) * n;
  LoadInsertRow(source, n, x);
  const int64_t slot = token_slot.ToWrite();
  if (slot < 0) return;
  uint8_t* to = p.rows.AtSlot(slot, head).data;
  if (is_key) {
    EncodeKey(p, x, x + row_floats / 2, to);
  } else {
    EncodeValue(p, x, to);
  }
}

template <typename T>
Error LaunchFrom(const TurboQuantInsert& p, Stream stream) {
  const int row_floats = 2 * static_cast<int>(p.format.head_size);
  const LaunchShape shape = InsertGridFor(p.slots.tokens, 2 * p.heads, row_floats);
  return Launch(TurboQuantInsertKernel<T>, shape, stream, p, row_floats);
}

}  // namespace

Error LaunchTurboQuantInsert(const TurboQuantInsert& p, Stream stream) {
  if (p.slots.tokens == 0 || p.heads == 0 || NumSlots(p.rows) == 0) return 0;
  if (2 * p.format.head_size > kLongestInsertRow) return cudaErrorInvalidValue;
  return ForRowType(p.source_type, [&]<typename T>() { return LaunchFrom<T>(p, stream); });
}

}  // namespace pagefuse::cuda
