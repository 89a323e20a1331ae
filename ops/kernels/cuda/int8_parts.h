// SPDX-License-Identifier: Apache-2.0
// Products of codes with rows that are rounded to int8, by tensor cores: what their kernels share.
//
// A block of 32 elements along K is one step of the tensor cores. Their order in a step is free: x lies in that in
// which codes come out of their bytes.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda {

inline constexpr int kRoundBlock = 32;

// Where element k of a block of x lies, in bytes. Lane t of four has bytes [4t, 4t + 4) of both halves.
//   4 bits: the codes at even places of a lane's word, then those at odd ones
//   8 bits: a lane's two words, which are neighbours; lanes have the words (0, 1), (4, 5), (2, 3), (6, 7)
constexpr int RoundedPlace(int bits, int k) {
  if (bits == 4) return k % 2 * (kRoundBlock / 2) + k / 2;
  const int word = k / 4, pair = word / 2;
  return word % 2 * (kRoundBlock / 2) + (pair % 2 * 2 + pair / 2) * 4 + k % 4;
}

// The first word of a block of 8-bit codes that lane t of four has.
constexpr int FirstWord(int t) { return (t % 2 * 2 + t / 2) * 2; }

// A product as its kernels are given it. x: [m, blocks, 32] as RoundedPlace tells, and a unit a block.
struct Int8Call {
  int64_t m = 0, n = 0;
  int blocks = 0;  // of a row of x
  bool constant_weights = false;
  const int8_t* x = nullptr;
  const float* units = nullptr;  // [m, blocks]
  struct Weight {
    const uint8_t* codes = nullptr;
    const float* scales = nullptr;        // [n, scale_blocks]
    const uint8_t* zero_codes = nullptr;  // of 4 bits; null: the centre
  } weight, up;
  int64_t row_bytes = 0;
  int scale_blocks = 0, zero_row_bytes = 0;
  int scale_shift = 0;  // log2 of blocks of x that have one scale
};

#ifdef __CUDACC__

// A sum of products under which a float has it as its fraction: what is added to it stays exact.
inline constexpr int32_t kSumBase = 0x4B400000;
__device__ inline float SumOf(int32_t based) {
  return __uint_as_float(static_cast<uint32_t>(based)) - 12582912.0f;
}

// Codes of a lane as two registers of int8: (code - zero). `zero`: of 4 bits, in every byte.
template <int kBits>
__device__ void UnpackCodes(uint32_t first, uint32_t second, uint32_t zero, uint32_t& b0,
                            uint32_t& b1) {
  if constexpr (kBits == 8) {
    b0 = first ^ 0x80808080u;
    b1 = second ^ 0x80808080u;
  } else {
    // Bytes do not borrow from each other above 128, and the last step takes that away.
    b0 = (((first & 0x0F0F0F0Fu) | 0x80808080u) - zero) ^ 0x80808080u;
    b1 = (((first >> 4 & 0x0F0F0F0Fu) | 0x80808080u) - zero) ^ 0x80808080u;
  }
}

// The zero point of a block of 4-bit codes in every byte of a word; `row`: that of the column, null: the centre.
__device__ inline uint32_t ZeroBytes(const uint8_t* row, int scale_block) {
  if (row == nullptr) return 0x08080808u;
  return (row[scale_block / 2] >> (scale_block % 2 * 4) & 15u) * 0x01010101u;
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
