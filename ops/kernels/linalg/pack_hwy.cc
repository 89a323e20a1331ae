// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/pack_hwy.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/pack_hwy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr int64_t kBlockRows = 32;
constexpr int64_t kBlockColumns = 16;
constexpr int64_t kBlockWords = kBlockRows * kBlockColumns;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;

// The bits of bf16(x), round to nearest even, in the upper halves (lower halves zero). NaN stays
// NaN: the rounding could carry it into infinity, so that it gets its quiet bit instead.
HWY_INLINE hn::Vec<DU> RoundBits(hn::Vec<DF> x) {
  const DF df;
  const DU du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto nan = hn::Or(bits, hn::Set(du, 0x00400000));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  (void)df;
  return hn::And(hn::IfThenElse(is_nan, nan, rounded), hn::Set(du, 0xFFFF0000u));
}

// One pair of rows, 16 columns: word 2 * c is even[c], word 2 * c + 1 is odd[c].
HWY_INLINE void PackPair(const float* even, const float* odd, uint16_t* out) {
  const DF df;
  const DU du;
  for (size_t c = 0; c < kBlockColumns; c += hn::Lanes(df)) {
    const auto low = hn::ShiftRight<16>(RoundBits(hn::LoadU(df, even + c)));
    const auto high = RoundBits(hn::LoadU(df, odd + c));
    hn::StoreU(hn::Or(low, high), du, reinterpret_cast<uint32_t*>(out) + c);
  }
}

// The 16 rows of 16 pairs at `from`, transposed; strides in words.
HWY_INLINE void TransposePairs(const uint16_t* from, int64_t from_stride, uint16_t* to,
                               int64_t to_stride) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> wide;
  constexpr int64_t kSide = 4;
  const auto load = [&](int64_t row, int64_t column) HWY_ATTR {
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(from + row * from_stride + 2 * column));
  };
  for (int64_t i = 0; i < kBlockColumns; i += kSide) {
    for (int64_t j = 0; j < kBlockColumns; j += kSide) {
      const auto row0 = load(i, j), row1 = load(i + 1, j), row2 = load(i + 2, j),
                 row3 = load(i + 3, j);
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, row0, row1));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, row0, row1));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, row2, row3));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, row2, row3));
      const auto store = [&](int64_t column, auto pairs) HWY_ATTR {
        hn::StoreU(hn::BitCast(d, pairs), d,
                   reinterpret_cast<uint32_t*>(to + (j + column) * to_stride + 2 * i));
      };
      store(0, hn::InterleaveLower(wide, low01, low23));
      store(1, hn::InterleaveUpper(wide, low01, low23));
      store(2, hn::InterleaveLower(wide, high01, high23));
      store(3, hn::InterleaveUpper(wide, high01, high23));
    }
  }
}

// Rows [first, first + rows) by columns [column, column + columns) of a weight [k, n], one block at
// most, rounded: pairs of rows beside each other.
void RoundBlock(const WeightView& weight, int64_t first, int64_t rows, int64_t column,
                int64_t columns, uint16_t* words) {
  for (int64_t r = 0; r < kBlockRows; r += 2) {
    HWY_ALIGN float edge[2 * kBlockColumns];
    const float* even = weight.data + (first + r) * weight.n + column;
    const float* odd = even + weight.n;
    if (r + 1 >= rows || columns < kBlockColumns) {
      std::memset(edge, 0, sizeof(edge));
      if (r < rows) std::memcpy(edge, even, columns * sizeof(float));
      if (r + 1 < rows) std::memcpy(edge + kBlockColumns, odd, columns * sizeof(float));
      even = edge;
      odd = edge + kBlockColumns;
    }
    PackPair(even, odd, words + r * kBlockColumns);
  }
}

void RoundTransposedImpl(const WeightView& weight, int64_t first, int64_t rows, uint16_t* out) {
  HWY_ALIGN uint16_t block[kBlockWords], turned[kBlockWords];
  for (int64_t column = 0; column < weight.n; column += kBlockColumns) {
    const int64_t columns = std::min(kBlockColumns, weight.n - column);
    for (int64_t row = first; row < first + rows; row += kBlockRows) {
      const int64_t count = std::min(kBlockRows, first + rows - row);
      uint16_t* to = out + column * weight.k + row;
      RoundBlock(weight, row, count, column, columns, block);
      if (columns == kBlockColumns && count == kBlockRows) {
        TransposePairs(block, kBlockRows, to, weight.k);
        continue;
      }
      TransposePairs(block, kBlockRows, turned, kBlockRows);
      for (int64_t c = 0; c < columns; ++c) {
        std::memcpy(to + c * weight.k, turned + c * kBlockRows, count * sizeof(uint16_t));
      }
    }
  }
}

void PackColumnsImpl(const uint16_t* rows, int64_t k, int64_t columns, uint16_t* out) {
  HWY_ALIGN uint16_t edge[kBlockWords];
  for (int64_t row = 0; row < k; row += kBlockRows, out += kBlockWords) {
    const int64_t count = std::min(kBlockRows, k - row);
    if (columns == kBlockColumns && count == kBlockRows) {
      TransposePairs(rows + row, k, out, kBlockRows);
      continue;
    }
    std::memset(edge, 0, sizeof(edge));
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(edge + c * kBlockRows, rows + c * k + row, count * sizeof(uint16_t));
    }
    TransposePairs(edge, kBlockRows, out, kBlockRows);
  }
}

// Rounds n floats to n words; pairs of neighbours in one 32-bit word.
HWY_INLINE void RoundWords(const float* x, int64_t n, uint16_t* out) {
  const DF df;
  const DU du;
  const hn::Rebind<uint16_t, DF> dw;
  const int64_t lanes = hn::Lanes(df);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto words = hn::ShiftRight<16>(RoundBits(hn::LoadU(df, x + i)));
    hn::StoreU(hn::DemoteTo(dw, hn::BitCast(hn::RebindToSigned<DU>(), words)), dw, out + i);
  }
  (void)du;
  if (i == n) return;
  HWY_ALIGN float in[16] = {};
  HWY_ALIGN uint16_t rest[16];
  std::memcpy(in, x + i, (n - i) * sizeof(float));
  const auto words = hn::ShiftRight<16>(RoundBits(hn::Load(df, in)));
  hn::StoreU(hn::DemoteTo(dw, hn::BitCast(hn::RebindToSigned<DU>(), words)), dw, rest);
  std::memcpy(out + i, rest, (n - i) * sizeof(uint16_t));
}

void PackTileRowsImpl(const RowsView& x, int64_t k, int64_t first, int64_t rows, uint16_t* out) {
  for (int64_t column = 0; column < k; column += kBlockRows) {
    const int64_t columns = std::min(kBlockRows, k - column);
    uint16_t* tile = out + column / kBlockRows * kBlockWords;
    for (int64_t r = 0; r < rows; ++r) {
      uint16_t* row = tile + r * kBlockRows;
      if (columns < kBlockRows) std::memset(row, 0, kBlockRows * sizeof(uint16_t));
      RoundWords(x.data + (first + r) * x.stride + column, columns, row);
    }
  }
}

void RoundRowImpl(const float* x, int64_t k, float* out) {
  const DF df;
  const int64_t lanes = hn::Lanes(df);
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    hn::StoreU(hn::BitCast(df, RoundBits(hn::LoadU(df, x + i))), df, out + i);
  }
  const int64_t padded = (k + kBlockRows - 1) / kBlockRows * kBlockRows;
  std::memset(out + i, 0, (padded - i) * sizeof(float));
  if (i == k) return;
  HWY_ALIGN float in[16] = {};
  std::memcpy(in, x + i, (k - i) * sizeof(float));
  hn::Store(hn::BitCast(df, RoundBits(hn::Load(df, in))), df, in);
  std::memcpy(out + i, in, (k - i) * sizeof(float));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(RoundTransposedImpl);
HWY_EXPORT(PackColumnsImpl);
HWY_EXPORT(PackTileRowsImpl);
HWY_EXPORT(RoundRowImpl);

void RoundTransposed(const WeightView& weight, int64_t first, int64_t rows, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(RoundTransposedImpl)(weight, first, rows, out);
}

void PackColumns(const uint16_t* rows, int64_t k, int64_t columns, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(PackColumnsImpl)(rows, k, columns, out);
}

void PackTileRows(const RowsView& x, int64_t k, int64_t first, int64_t rows, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(PackTileRowsImpl)(x, k, first, rows, out);
}

void RoundRow(const float* x, int64_t k, float* out) {
  HWY_DYNAMIC_DISPATCH(RoundRowImpl)(x, k, out);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
