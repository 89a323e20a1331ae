// SPDX-License-Identifier: Apache-2.0
// A row of floats in shared memory that one warp works on. Device code: for .cu files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline int LaneId() { return static_cast<int>(threadIdx.x) % kWarp; }

// f(lane's value, other lane's value) over all lanes; each lane gets the result.
template <typename T, class F>
__device__ T OverLanes(T value, F f) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = f(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
template <typename T>
__device__ T SumOfLanes(T value) {
  return OverLanes(value, [](T a, T b) { return a + b; });
}
__device__ inline float MaxOfLanes(float value) {
  return OverLanes(value, [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline float MinOfLanes(float value) {
  return OverLanes(value, [](float a, float b) { return fminf(a, b); });
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};
template <typename T>
__device__ bool ComesInFours(const T* p, int n) {
  return n % 4 == 0 && reinterpret_cast<uintptr_t>(p) % sizeof(Four<T>) == 0;
}

// x[0, n) = from[0, n) as floats. The lanes see each other's elements afterwards.
template <typename T>
__device__ void LoadRow(const T* from, int n, float* x) {
  const int lane = LaneId();
  if (ComesInFours(from, n)) {
    for (int d = 4 * lane; d < n; d += 4 * kWarp) {
      const auto four = *reinterpret_cast<const Four<T>*>(from + d);
      for (int i = 0; i < 4; ++i) x[d + i] = static_cast<float>(four.at[i]);
    }
  } else {
    for (int d = lane; d < n; d += kWarp) x[d] = static_cast<float>(from[d]);
  }
  __syncwarp();
}

// to[i] = element(i) for i in [0, n).
template <typename T, class F>
__device__ void StoreRow(T* to, int n, F element) {
  const int lane = LaneId();
  if (ComesInFours(to, n)) {
    for (int i = 4 * lane; i < n; i += 4 * kWarp) {
      Four<T> four;
      for (int k = 0; k < 4; ++k) four.at[k] = element(i + k);
      *reinterpret_cast<Four<T>*>(to + i) = four;
    }
  } else {
    for (int i = lane; i < n; i += kWarp) to[i] = element(i);
  }
}

// Bytes of a float, low first, where it may be unaligned. All lanes have the value.
__device__ inline void StoreFloatBytes(float value, uint8_t* to) {
  for (int i = LaneId(); i < 4; i += kWarp) {
    to[i] = static_cast<uint8_t>(__float_as_uint(value) >> (8 * i));
  }
}
__device__ inline float LoadFloatBytes(const uint8_t* from) {
  uint32_t bits = 0;
  if (reinterpret_cast<uintptr_t>(from) % 4 == 0) {
    bits = *reinterpret_cast<const uint32_t*>(from);
  } else {
    for (int i = 0; i < 4; ++i) bits |= uint32_t{from[i]} << (8 * i);
  }
  return __uint_as_float(bits);
}
__device__ inline void StoreHalfBytes(float value, uint8_t* to) {
  const uint32_t code = EncodeFloat<Float16Format>(value);
  for (int i = LaneId(); i < 2; i += kWarp) to[i] = static_cast<uint8_t>(code >> (8 * i));
}
__device__ inline float LoadHalfBytes(const uint8_t* from) {
  return DecodeFloat<Float16Format>(static_cast<uint16_t>(from[0] | from[1] << 8));
}

// Code `i` of a stream of codes of 3 or 4 bits (packing.h).
__device__ inline int StreamCode(const uint8_t* from, int bits, int i) {
  const int at = i * bits;
  const int shift = at % 8;
  int pair = from[at / 8];
  if (shift + bits > 8) pair |= from[at / 8 + 1] << 8;
  return pair >> shift & ((1 << bits) - 1);
}
// Stores the stream of n codes, whole numbers in shared memory, that fill whole bytes.
__device__ inline void StoreStream(const float* codes, int bits, int n, uint8_t* to) {
  for (int byte = LaneId(); byte < n * bits / 8; byte += kWarp) {
    int value = 0;
    for (int i = 8 * byte / bits; i * bits < 8 * byte + 8; ++i) {
      const int shift = i * bits - 8 * byte;
      const int code = static_cast<int>(codes[i]);
      value |= shift < 0 ? code >> -shift : code << shift;
    }
    to[byte] = static_cast<uint8_t>(value);
  }
}

// HadamardTransform of cache_format.h: each butterfly is one sum and one difference of the same numbers, so the bits are the same.
// n is a power of two.
__device__ inline void HadamardTransform(float* x, int n) {
  const int lane = LaneId();
  for (int distance = 1; distance < n; distance *= 2) {
    for (int i = lane; i < n / 2; i += kWarp) {
      const int first = i / distance * (2 * distance) + i % distance;
      const float a = x[first];
      const float b = x[first + distance];
      x[first] = __fadd_rn(a, b);
      x[first + distance] = __fsub_rn(a, b);
    }
    __syncwarp();
  }
}

// x rounded to a type and back.
template <typename T>
__device__ void RoundRowThrough(float* x, int n) {
  for (int d = LaneId(); d < n; d += kWarp) x[d] = static_cast<float>(T(x[d]));
  __syncwarp();
}

// Sum of squares as float; summed in double, so that its order does not show.
__device__ inline float SumOfSquares(const float* x, int n) {
  double sum = 0;
  for (int d = LaneId(); d < n; d += kWarp) sum += static_cast<double>(x[d]) * x[d];
  return static_cast<float>(SumOfLanes(sum));
}

}  // namespace pagefuse::cuda
