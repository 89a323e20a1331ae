// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/integer_product_hwy.cc"
#include "pagefuse/ops/kernels/linalg/integer_product_hwy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void PackPairs(const uint8_t* row, bool is_signed, int32_t zero, int64_t k, int64_t pairs,
               uint32_t* words) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, zero);
  const auto low_half = hn::Set(d, 0xFFFF);
  int64_t p = 0;
  for (; 2 * (p + lanes) <= k; p += lanes) {
    const auto both =
        hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row + 2 * p)));
    auto even = hn::And(both, hn::Set(d, 0xFF));
    auto odd = hn::ShiftRight<8>(both);
    if (is_signed) {
      even = hn::ShiftRight<24>(hn::ShiftLeft<24>(both));
      odd = hn::ShiftRight<24>(hn::ShiftLeft<16>(both));
    }
    even = hn::And(hn::Sub(even, shift), low_half);
    odd = hn::ShiftLeft<16>(hn::Sub(odd, shift));
    hn::StoreU(hn::Or(even, odd), d, reinterpret_cast<int32_t*>(words) + p);
  }
  for (; p < pairs; ++p) {
    const int32_t even = 2 * p < k ? ByteAt(row, is_signed, 2 * p) - zero : 0;
    const int32_t odd = 2 * p + 1 < k ? ByteAt(row, is_signed, 2 * p + 1) - zero : 0;
    words[p] = (static_cast<uint32_t>(odd) << 16) | (static_cast<uint32_t>(even) & 0xFFFF);
  }
}

#if HWY_TARGET != HWY_SCALAR
using D16 = hn::ScalableTag<int16_t>;

template <bool is_signed>
HWY_INLINE hn::Vec<D16> LoadBytes(const uint8_t* row) {
  using Byte = std::conditional_t<is_signed, int8_t, uint8_t>;
  const hn::Rebind<Byte, D16> d8;
  return hn::PromoteTo(D16(), hn::LoadU(d8, reinterpret_cast<const Byte*>(row)));
}

// Adds to y the products of the four words of each row of a with pairs of rows of b, of which
// `pairs` has half the columns of each 128-bit block.
template <class V>
HWY_INLINE void AddProducts(const PackedRows& a, int64_t pair, const V (&pairs)[4], int32_t* y,
                            int64_t y_stride) {
  const hn::RepartitionToWide<D16> d;
  const auto all = [&](uint32_t word) HWY_ATTR {
    return hn::BitCast(D16(), hn::Set(d, static_cast<int32_t>(word)));
  };
  for (int64_t r = 0; r < a.rows; ++r) {
    const uint32_t* words = a.words + r * a.pairs + pair;
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    for (int i = 0; i < 4; ++i) {
      sum0 = hn::ReorderWidenMulAccumulate(d, all(words[i]), pairs[i], sum0, sum1);
    }
    int32_t* to = y + r * y_stride;
    hn::StoreU(hn::Add(hn::LoadU(d, to), hn::RearrangeToOddPlusEven(sum0, sum1)), d, to);
  }
}

// y += four words of each row of a by eight rows of b, for as many columns as a vector has int16.
// The sums of the lower halves of the 128-bit blocks come first, then those of the upper halves.
template <bool is_signed>
HWY_INLINE void MultiplyBlock(const PackedRows& a, int64_t pair, const uint8_t* const (&b)[8],
                              int32_t* y, int64_t y_stride) {
  hn::Vec<D16> lower[4], upper[4];
  for (int i = 0; i < 4; ++i) {
    const auto even = LoadBytes<is_signed>(b[2 * i]), odd = LoadBytes<is_signed>(b[2 * i + 1]);
    lower[i] = hn::InterleaveLower(D16(), even, odd);
    upper[i] = hn::InterleaveUpper(D16(), even, odd);
  }
  AddProducts(a, pair, lower, y, y_stride);
  AddProducts(a, pair, upper, y + hn::Lanes(D16()) / 2, y_stride);
}

// Puts the sums of a vector of columns back in order.
HWY_INLINE void Reorder(int32_t* y) {
  constexpr int64_t kHalf = 4;  // columns of half a block
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D16()));
  int32_t sums[hn::MaxLanes(D16())];
  std::copy(y, y + lanes, sums);
  for (int64_t i = 0; i < lanes / 2; i += kHalf) {
    std::copy(sums + i, sums + i + kHalf, y + 2 * i);
    std::copy(sums + lanes / 2 + i, sums + lanes / 2 + i + kHalf, y + 2 * i + kHalf);
  }
}
#endif  // HWY_TARGET != HWY_SCALAR

template <bool is_signed>
void MultiplyColumns(const PackedRows& a, const ByteRows& b, int64_t k, int64_t begin, int64_t end,
                     int32_t* y, int64_t y_stride) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int16_t>()));
  // The scalar target has no pairs.
  const bool vectors = HWY_TARGET != HWY_SCALAR;
  const int64_t whole = vectors ? begin + (end - begin) / lanes * lanes : begin;
  for (int64_t r = 0; r < a.rows; ++r) std::fill_n(y + r * y_stride + begin, end - begin, 0);
  for (int64_t pair = 0; 2 * pair < k; pair += 4) {
    const uint8_t* rows[8];
    // Rows from k on are multiplied by 0: any row will do.
    for (int64_t i = 0; i < 8; ++i) rows[i] = b.data + std::min(2 * pair + i, k - 1) * b.stride;
#if HWY_TARGET != HWY_SCALAR
    for (int64_t j = begin; j < whole; j += lanes) {
      const uint8_t* const at[8] = {rows[0] + j, rows[1] + j, rows[2] + j, rows[3] + j,
                                    rows[4] + j, rows[5] + j, rows[6] + j, rows[7] + j};
      MultiplyBlock<is_signed>(a, pair, at, y + j, y_stride);
    }
#endif
    for (int64_t r = 0; r < a.rows; ++r) {
      const uint32_t* words = a.words + r * a.pairs + pair;
      for (int64_t j = whole; j < end; ++j) {
        uint32_t sum = static_cast<uint32_t>(y[r * y_stride + j]);
        for (int64_t i = 0; i < 8; ++i) {
          const auto half = static_cast<int16_t>(words[i / 2] >> (i % 2 * 16));
          sum += static_cast<uint32_t>(half * ByteAt(rows[i], is_signed, j));
        }
        y[r * y_stride + j] = static_cast<int32_t>(sum);
      }
    }
  }
#if HWY_TARGET != HWY_SCALAR
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t j = begin; j < whole; j += lanes) Reorder(y + r * y_stride + j);
  }
#endif
}

void MultiplyPacked(const PackedRows& a, const ByteRows& b, int64_t k, int64_t begin, int64_t end,
                    int32_t* y, int64_t y_stride) {
  (b.is_signed ? MultiplyColumns<true> : MultiplyColumns<false>)(a, b, k, begin, end, y, y_stride);
}

template <class To>
HWY_INLINE void Requantize(const int32_t* sums, int64_t n, const Requantization& to, To* y) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<To, decltype(d)> dto;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const double low = std::is_signed<To>() ? -128 : 0, high = low + 255;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto sum = hn::Add(hn::PromoteTo(d, hn::LoadU(di, sums + i)), hn::Set(d, to.bias));
    const auto scale = to.scales == nullptr ? hn::Set(d, to.scale) : hn::LoadU(d, to.scales + i);
    auto x = hn::Add(hn::Round(hn::Mul(sum, scale)), hn::Set(d, to.zero));
    x = hn::IfThenElseZero(hn::Eq(x, x), hn::Min(hn::Max(x, hn::Set(d, low)), hn::Set(d, high)));
    hn::StoreU(hn::DemoteTo(dto, hn::DemoteTo(di, x)), dto, y + i);
  }
  for (; i < n; ++i) {
    const double scale = to.scales == nullptr ? to.scale : to.scales[i];
    const double x = std::nearbyint((sums[i] + to.bias) * scale) + to.zero;
    y[i] = x == x ? static_cast<To>(std::clamp(x, low, high)) : To{0};
  }
}

void RequantizeAny(const int32_t* sums, int64_t n, const Requantization& to, uint8_t* y) {
  if (to.is_signed) return Requantize(sums, n, to, reinterpret_cast<int8_t*>(y));
  Requantize(sums, n, to, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(PackPairs);
HWY_EXPORT(MultiplyPacked);
HWY_EXPORT(RequantizeAny);

void PackIntegerPairs(const uint8_t* row, bool is_signed, int32_t zero, int64_t k, int64_t pairs,
                      uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(PackPairs)(row, is_signed, zero, k, pairs, words);
}
void MultiplyPackedRows(const PackedRows& a, const ByteRows& b, int64_t k, int64_t begin,
                        int64_t end, int32_t* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyPacked)(a, b, k, begin, end, y, y_stride);
}
void RequantizeRow(const int32_t* sums, int64_t n, const Requantization& to, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(RequantizeAny)(sums, n, to, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
