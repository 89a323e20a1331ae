// SPDX-License-Identifier: Apache-2.0
// TurboQuantInsert: a warp a key or a value; the bytes of EncodeTurboQuantKey and EncodeTurboQuantValue. Heads of 128 elements with the
// format's own rotation and centroids stay in registers.
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

__device__ float ValueScale(const RowRange& range, float most) {
  const float scale = __fdiv_rn(__fsub_rn(range.high, range.low), most);
  return scale > kTurboQuantScaleFloor ? scale : kTurboQuantScaleFloor;
}
__device__ float ValueCode(float x, float low, float scale, float most) {
  const float place = __fadd_rn(__fdiv_rn(__fsub_rn(x, low), scale), 0.5f);
  return place > 0 ? truncf(fminf(place, most)) : 0.0f;  // 0 for NaN too
}

// Changes x.
__device__ void EncodeValue(const TurboQuantInsert& p, float* x, uint8_t* slot) {
  const int n = static_cast<int>(p.format.head_size);
  const float most = static_cast<float>((1 << p.format.value_bits) - 1);
  const RowRange range = RangeOf(x, n);
  const float scale = ValueScale(range, most);
  __syncwarp();  // all have read the first element
  for (int d = LaneId(); d < n; d += kWarp) x[d] = ValueCode(x[d], range.low, scale, most);
  __syncwarp();
  uint8_t* to = slot + p.format.KeyBytes();
  StoreStream(x, p.format.value_bits, n, to);
  StoreHalfBytes(scale, to + p.format.ValueDataBytes());
  StoreHalfBytes(range.low, to + p.format.ValueDataBytes() + 2);
}

// The key or value of a token that a warp has.
template <typename T>
struct InsertedRow {
  bool is_key;
  int head;
  const T* source;  // [n]

  __device__ InsertedRow(const TurboQuantInsert& p, int64_t token, int row, int n)
      : is_key(row < p.heads), head(is_key ? row : row - p.heads) {
    source = static_cast<const T*>(is_key ? p.key : p.value) + (token * p.heads + head) * n;
  }
};

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
  const InsertedRow<T> inserted(p, token, row, n);
  LoadInsertRow(inserted.source, n, x);
  const int64_t slot = token_slot.ToWrite();
  if (slot < 0) return;
  uint8_t* to = p.rows.AtSlot(slot, inserted.head).data;
  if (inserted.is_key) {
    EncodeKey(p, x, x + row_floats / 2, to);
  } else {
    EncodeValue(p, x, to);
  }
}

// --- in registers: lane i of the warp has elements i, i + 32, ... ---

constexpr int kOwn = 4;
constexpr int kOwnSize = kOwn * kWarp;

// HadamardRotateOwn.
__device__ void HadamardRotateOwn(float (&x)[kOwn]) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const bool is_second = (LaneId() & distance) != 0;
#pragma unroll
    for (float& own : x) {
      const float other = __shfl_xor_sync(kAllLanes, own, distance);
      own = is_second ? __fsub_rn(other, own) : __fadd_rn(own, other);
    }
  }
#pragma unroll
  for (int distance = 1; distance < kOwn; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = __fadd_rn(a, b);
      x[i + distance] = __fsub_rn(a, b);
    }
  }
  const float entry = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(kOwnSize)));
#pragma unroll
  for (float& own : x) own = __fmul_rn(own, entry);
}

// StoreStream of codes in registers. Eight lanes side by side have the codes of a word of 8 * bits bits, for each of the kOwn: they pass on
// words until each lane has one of them whole, and two lanes the same.
__device__ void StoreOwnStream(const int (&codes)[kOwn], int bits, uint8_t* to) {
  const int lane = LaneId();
  uint32_t words[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) words[i] = static_cast<uint32_t>(codes[i]) << lane % 8 * bits;
  const auto keep = [lane](uint32_t low, uint32_t high, int distance) {
    const bool is_second = (lane & distance) != 0;
    return (is_second ? high : low) | __shfl_xor_sync(kAllLanes, is_second ? low : high, distance);
  };
  uint32_t word = keep(keep(words[0], words[2], 1), keep(words[1], words[3], 1), 2);
  word |= __shfl_xor_sync(kAllLanes, word, 4);
  const int which = (lane % 2 * 2 + lane / 2 % 2) * (kWarp / 8) + lane / 8;
  for (int byte = lane / 4 % 2; byte < bits; byte += 2) {
    to[which * bits + byte] = static_cast<uint8_t>(word >> 8 * byte);
  }
}

// EncodeKey.
__device__ void EncodeOwnKey(const TurboQuantInsert& p, float (&x)[kOwn], uint8_t* slot) {
  const int lane = LaneId();
  if (!p.format.has_centroids()) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) slot[lane + i * kWarp] = EncodeFloat<E4M3FNFormat>(x[i]);
    return;
  }
  double sum = 0;  // as in SumOfSquares
#pragma unroll
  for (const float own : x) sum += static_cast<double>(own) * own;
  const float norm = __fsqrt_rn(static_cast<float>(SumOfLanes(sum)));
  const float divisor = __fadd_rn(norm, kTurboQuantNormFloor);
#pragma unroll
  for (float& own : x) own = __fdiv_rn(own, divisor);
  HadamardRotateOwn(x);
  // Lane i has border i. They ascend: how many are not above an element is found by halves.
  const int count = static_cast<int>(p.format.NumCentroids());
  const int centroid = min(lane, count - 2);
  const float own_border =
      __fmul_rn(__fadd_rn(p.centroids.copy[centroid], p.centroids.copy[centroid + 1]), 0.5f);
  int codes[kOwn] = {};
  for (int step = count / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float border = __shfl_sync(kAllLanes, own_border, codes[i] + step - 1);
      codes[i] += x[i] >= border ? step : 0;
    }
  }
  StoreOwnStream(codes, p.format.key_bits, slot);
  StoreHalfBytes(norm, slot + p.format.KeyDataBytes());
}

// RangeOf.
__device__ RowRange OwnRangeOf(const float (&x)[kOwn]) {
  const float first = __shfl_sync(kAllLanes, x[0], 0);
  if (first != first) return {first, first};
  RowRange range = {first, first};
#pragma unroll
  for (const float own : x) {
    range.low = fminf(range.low, own);
    range.high = fmaxf(range.high, own);
  }
  return {MinOfLanes(range.low), MaxOfLanes(range.high)};
}

// EncodeValue.
__device__ void EncodeOwnValue(const TurboQuantInsert& p, const float (&x)[kOwn], uint8_t* slot) {
  const float most = static_cast<float>((1 << p.format.value_bits) - 1);
  const RowRange range = OwnRangeOf(x);
  const float scale = ValueScale(range, most);
  int codes[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    codes[i] = static_cast<int>(ValueCode(x[i], range.low, scale, most));
  }
  uint8_t* to = slot + p.format.KeyBytes();
  StoreOwnStream(codes, p.format.value_bits, to);
  StoreHalfBytes(scale, to + p.format.ValueDataBytes());
  StoreHalfBytes(range.low, to + p.format.ValueDataBytes() + 2);
}

template <typename T>
__global__ void TurboQuantOwnKernel(const __grid_constant__ TurboQuantInsert p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const TokenSlot token_slot(p.slots, token, NumSlots(p.rows));
  const int row = RowOfWarp();
  if (row >= 2 * p.heads) return;
  const InsertedRow<T> inserted(p, token, row, kOwnSize);
  T own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] = inserted.source[LaneId() + i * kWarp];
  const int64_t slot = token_slot.ToWrite();
  if (slot < 0) return;
  uint8_t* to = RowOfSlot(p.rows, slot).data + inserted.head * p.rows.data_strides.head;
  float x[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) x[i] = static_cast<float>(own[i]);
  if (inserted.is_key) {
    EncodeOwnKey(p, x, to);
  } else {
    EncodeOwnValue(p, x, to);
  }
}

bool StaysInRegisters(const TurboQuantInsert& p) {
  return p.format.head_size == kOwnSize && p.rotation == nullptr && p.centroids.device == nullptr;
}

template <typename T>
Error LaunchFrom(const TurboQuantInsert& p, Stream stream) {
  if (StaysInRegisters(p)) {
    LaunchShape shape = InsertGridFor(p.slots.tokens, 2 * p.heads, 1);
    shape.shared_bytes = 0;
    return Launch(TurboQuantOwnKernel<T>, shape, stream, p);
  }
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
