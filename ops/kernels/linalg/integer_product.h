// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit matrices, exact in int32: what MatMulInteger, QLinearMatMul, ConvInteger and
// QLinearConv share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefuse {

// Rows of 8-bit numbers, `stride` bytes apart, int8 where `is_signed`, else uint8.
struct ByteRows {
  const uint8_t* data = nullptr;
  int64_t stride = 0;
  bool is_signed = false;
};

// One zero point for all lines (step 0), or one each (step 1), in the range of the operand's type.
struct ZeroPoints {
  const int32_t* values = nullptr;
  int64_t step = 0;

  int32_t operator[](int64_t line) const { return values[line * step]; }
};

// y [m, n] = (a - a_zeros) * (b - b_zeros) modulo 2^32, for a [m, k], whose zero points belong to
// rows, and b [k, n], whose zero points belong to columns. The rows of y are `y_stride` numbers
// apart. Sizes may be 0.
struct IntegerProduct {
  int64_t m = 0, k = 0, n = 0;
  ByteRows a = {}, b = {};
  ZeroPoints a_zeros = {}, b_zeros = {};
  int32_t* y = nullptr;
  int64_t y_stride = 0;
};

// to[0, count) = uint8 numbers less 128, as int8: of a right operand that is used more than once
// this is better done before.
inline constexpr int32_t kSignedShift = 128;
void ShiftToSigned(const uint8_t* from, size_t count, uint8_t* to);

// Bytes of scratch memory (aligned to 64) that MultiplyIntegers needs.
size_t IntegerProductScratchBytes(int64_t m, int64_t k, int64_t n);

// Shared among the workers of the call. Several rows go through oneDNN where its products are
// exact.
void MultiplyIntegers(const IntegerProduct& product, void* scratch);

// How sums become quantised numbers: low..high(round((sum + bias) * scale) + zero), halves to even,
// in double. `scales` has one for each column, where it is not null.
struct Requantization {
  double scale = 1;
  const double* scales = nullptr;
  double bias = 0;
  double zero = 0;
  bool is_signed = false;  // to int8, else to uint8
};

// One row of n sums.
void RequantizeRow(const int32_t* sums, int64_t n, const Requantization& to, uint8_t* y);

}  // namespace pagefuse
