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

void PackRowsImpl(const WeightView& weight, int64_t block, const BlockRow& out) {
  const int64_t first = block * kBlockRows;
  const int64_t rows = std::min(kBlockRows, weight.k - first);
  for (int64_t column = 0; column < weight.n; column += kBlockColumns) {
    const int64_t columns = std::min(kBlockColumns, weight.n - column);
    uint16_t* words = out.words + column / kBlockColumns * out.column_stride;
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

void PackColumnsImpl(const WeightView& weight, int64_t block, uint16_t* out) {
  const int64_t first = block * kBlockColumns;
  const int64_t columns = std::min(kBlockColumns, weight.n - first);
  for (int64_t k = 0; k < weight.k; k += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, weight.k - k);
    uint32_t* pairs = reinterpret_cast<uint32_t*>(out + k / kBlockRows * kBlockWords);
    std::memset(pairs, 0, kBlockWords * sizeof(uint16_t));
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t row[kBlockRows / 2] = {};
      RoundWords(weight.data + (first + c) * weight.k + k, rows, reinterpret_cast<uint16_t*>(row));
      for (int64_t r = 0; r < kBlockRows / 2; ++r) pairs[r * kBlockColumns + c] = row[r];
    }
  }
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

HWY_EXPORT(PackRowsImpl);
HWY_EXPORT(PackColumnsImpl);
HWY_EXPORT(PackTileRowsImpl);
HWY_EXPORT(RoundRowImpl);

void PackRows(const WeightView& weight, int64_t block, const BlockRow& out) {
  HWY_DYNAMIC_DISPATCH(PackRowsImpl)(weight, block, out);
}

void PackColumns(const WeightView& weight, int64_t block, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(PackColumnsImpl)(weight, block, out);
}

void PackTileRows(const RowsView& x, int64_t k, int64_t first, int64_t rows, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(PackTileRowsImpl)(x, k, first, rows, out);
}

void RoundRow(const float* x, int64_t k, float* out) {
  HWY_DYNAMIC_DISPATCH(RoundRowImpl)(x, k, out);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
