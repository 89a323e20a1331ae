// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/integer_product.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/integer_product_hwy.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"

namespace pagefuse {
namespace {

// Rows of a that share a pass over b, and columns of such a pass: their sums stay in the L1 cache.
constexpr int64_t kRowGroup = 16, kColumnGroup = 256;
// From here on the packing of oneDNN's product pays.
constexpr int64_t kMinGemmRows = 4;
// Sums of more products may not fit in int32, and it is not said what oneDNN does then.
constexpr int64_t kMaxGemmDepth = int64_t{1} << 15;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t PairsOf(int64_t k) { return CeilDiv(k, 8) * 4; }

bool UsesGemm(int64_t m, int64_t k) {
  return m >= kMinGemmRows && k <= kMaxGemmDepth && HasExactByteGemm();
}

// The zero point of all lines, if it is one.
std::optional<int32_t> CommonZero(const ZeroPoints& zeros, int64_t lines) {
  for (int64_t i = 1; i < lines && zeros.step != 0; ++i) {
    if (zeros[i] != zeros[0]) return std::nullopt;
  }
  return zeros[0];
}

// y[i, j] -= rows[i] * columns[j], modulo 2^32.
void SubtractOuterProduct(const IntegerProduct& p, const std::vector<uint32_t>& rows,
                          const std::vector<uint32_t>& columns) {
  ParallelFor(p.m, p.n * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto subtract = [factor = rows[i]](int32_t y, uint32_t column) {
        return static_cast<int32_t>(static_cast<uint32_t>(y) - factor * column);
      };
      int32_t* y = p.y + i * p.y_stride;
      std::transform(y, y + p.n, columns.data(), y, subtract);
    }
  });
}

// Of y = (a - a_zeros) * b: the product of b's zero points and the sums of rows of a.
void SubtractBZeros(const IntegerProduct& p) {
  std::vector<uint32_t> sums(static_cast<size_t>(p.m)), zeros(static_cast<size_t>(p.n));
  ParallelFor(p.m, p.k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* row = p.a.data + i * p.a.stride;
      uint32_t sum = 0;
      for (int64_t j = 0; j < p.k; ++j) {
        sum += static_cast<uint32_t>(ByteAt(row, p.a.is_signed, j));
      }
      sums[i] = sum - static_cast<uint32_t>(p.k) * static_cast<uint32_t>(p.a_zeros[i]);
    }
  });
  for (int64_t j = 0; j < p.n; ++j) zeros[j] = static_cast<uint32_t>(p.b_zeros[j]);
  SubtractOuterProduct(p, sums, zeros);
}

// Of y = a * (b - b_zero): the product of a's zero points and the sums of columns.
void SubtractAZeros(const IntegerProduct& p, int32_t b_zero) {
  const uint32_t total = static_cast<uint32_t>(p.k) * static_cast<uint32_t>(b_zero);
  std::vector<uint32_t> zeros(static_cast<size_t>(p.m)), sums(static_cast<size_t>(p.n), 0 - total);
  for (int64_t i = 0; i < p.m; ++i) zeros[i] = static_cast<uint32_t>(p.a_zeros[i]);
  ParallelFor(p.n, p.k, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < p.k; ++r) {
      const uint8_t* row = p.b.data + r * p.b.stride;
      for (int64_t j = begin; j < end; ++j) {
        sums[j] += static_cast<uint32_t>(ByteAt(row, p.b.is_signed, j));
      }
    }
  });
  SubtractOuterProduct(p, zeros, sums);
}

void MultiplyStreamed(const IntegerProduct& p, uint32_t* words) {
  const int64_t pairs = PairsOf(p.k);
  ParallelFor(p.m, p.k * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      PackIntegerPairs(p.a.data + i * p.a.stride, p.a.is_signed, p.a_zeros[i], p.k, pairs,
                       words + i * pairs);
    }
  });
  const int64_t row_groups = CeilDiv(p.m, kRowGroup);
  // One row is walked in parts as wide as can be: b then comes as long runs.
  const int64_t share = CeilDiv(CeilDiv(p.n, MaxWorkers()), 64) * 64;
  const int64_t columns = p.m > 1 ? kColumnGroup : std::clamp<int64_t>(share, 256, 2048);
  const int64_t tasks = row_groups * CeilDiv(p.n, columns);
  ParallelFor(tasks, columns * (p.k + 8), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task % row_groups * kRowGroup;
      const int64_t rows = std::min(kRowGroup, p.m - row);
      const int64_t first = task / row_groups * columns;
      const int64_t last = std::min(first + columns, p.n);
      MultiplyPackedRows({words + row * pairs, rows, pairs}, p.b, p.k, first, last,
                         p.y + row * p.y_stride, p.y_stride);
    }
  });
  if (CommonZero(p.b_zeros, p.n) != 0) SubtractBZeros(p);
}

// b as int8; its zero point makes up for the shift.
ByteRows SignedB(const IntegerProduct& p, uint8_t* to) {
  if (p.b.is_signed) return p.b;
  ParallelFor(p.k, p.n * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      ShiftToSigned(p.b.data + r * p.b.stride, static_cast<size_t>(p.n), to + r * p.n);
    }
  });
  return {to, p.n, true};
}

// By oneDNN, which takes zero points of whole matrices; false, with anything in y, if it fails.
bool MultiplyWithGemm(const IntegerProduct& p, uint8_t* scratch) {
  const std::optional<int32_t> a_zero = CommonZero(p.a_zeros, p.m);
  const std::optional<int32_t> b_zero = CommonZero(p.b_zeros, p.n);
  const ByteRows b = SignedB(p, scratch);
  const int32_t shift = p.b.is_signed ? 0 : kSignedShift;
  const bool ok = ParallelByteGemm({.m = p.m,
                                    .n = p.n,
                                    .k = p.k,
                                    .a = p.a.data,
                                    .a_signed = p.a.is_signed,
                                    .lda = p.a.stride,
                                    .a_zero = a_zero.value_or(0),
                                    .b = reinterpret_cast<const int8_t*>(b.data),
                                    .ldb = b.stride,
                                    .b_zero = static_cast<int8_t>(b_zero.value_or(0) - shift),
                                    .c = p.y,
                                    .ldc = p.y_stride});
  if (ok && !b_zero) SubtractBZeros(p);
  if (ok && !a_zero) SubtractAZeros(p, b_zero.value_or(0));
  return ok;
}

}  // namespace

void ShiftToSigned(const uint8_t* from, size_t count, uint8_t* to) {
  std::transform(from, from + count, to, [](uint8_t x) { return x ^ 0x80; });
}

size_t IntegerProductScratchBytes(int64_t m, int64_t k, int64_t n) {
  const int64_t pairs_bytes = m * PairsOf(k) * static_cast<int64_t>(sizeof(uint32_t));
  return static_cast<size_t>(UsesGemm(m, k) ? std::max(pairs_bytes, k * n) : pairs_bytes);
}

void MultiplyIntegers(const IntegerProduct& p, void* scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i) std::fill_n(p.y + i * p.y_stride, p.n, 0);
    return;
  }
  if (UsesGemm(p.m, p.k) && MultiplyWithGemm(p, static_cast<uint8_t*>(scratch))) return;
  MultiplyStreamed(p, static_cast<uint32_t*>(scratch));
}

}  // namespace pagefuse
