#include "pagefuse/ops/linalg/nbits_hwy.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/linalg/nbits_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DFull = hn::ScalableTag<float>;
using DSmall = hn::CappedTag<float, 8>;  // for blocks of 16: eight even and eight odd elements

// kRows rows of x.
template <int kRows>
struct XRows {
  const float* row[kRows];
};

// sums[r] += block of codes * block of x[r], 4 bits.
template <class D, int kRows>
HWY_INLINE void AddNibbles(D d, const uint8_t* codes, int64_t half, const XRows<kRows>& x,
                           int64_t at, hn::Vec<D> (&sums)[kRows]) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < half; i += lanes) {
    const auto pair = hn::PromoteTo(d32, hn::LoadU(d8, codes + i));
    const auto even = hn::ConvertTo(d, hn::And(pair, hn::Set(d32, 15)));
    const auto odd = hn::ConvertTo(d, hn::ShiftRight<4>(pair));
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(even, hn::LoadU(d, x.row[r] + at + i), sums[r]);
      sums[r] = hn::MulAdd(odd, hn::LoadU(d, x.row[r] + at + half + i), sums[r]);
    }
  }
}

// The same, 8 bits.
template <class D, int kRows>
HWY_INLINE void AddBytes(D d, const uint8_t* codes, int64_t block, const XRows<kRows>& x,
                         int64_t at, hn::Vec<D> (&sums)[kRows]) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < block; i += lanes) {
    const auto code = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes + i)));
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(code, hn::LoadU(d, x.row[r] + at + i), sums[r]);
    }
  }
}

// dots[r] = sum over blocks of scale * (codes * x[r]), without zero points. Two running sums a row,
// so that one block's addition does not wait for the one before.
template <class D, int kRows, int kBits>
HWY_INLINE void RowDots(D d, const NBitsWeight& w, int64_t n, const XRows<kRows>& x, float* dots) {
  const uint8_t* codes = w.codes + n * w.row_bytes;
  const int64_t blocks = w.blocks();
  const float* scales = w.scales + n * blocks;
  const int64_t block_bytes = w.block * kBits / 8;
  hn::Vec<D> totals[2][kRows];
  for (int r = 0; r < kRows; ++r) totals[0][r] = totals[1][r] = hn::Zero(d);
  const auto add = [&](int64_t b, hn::Vec<D>(&total)[kRows]) HWY_ATTR {
    hn::Vec<D> sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
    if constexpr (kBits == 4) {
      AddNibbles(d, codes + b * block_bytes, w.block / 2, x, b * w.block, sums);
    } else {
      AddBytes(d, codes + b * block_bytes, w.block, x, b * w.block, sums);
    }
    const auto scale = hn::Set(d, scales[b]);
    for (int r = 0; r < kRows; ++r) total[r] = hn::MulAdd(sums[r], scale, total[r]);
  };
  int64_t b = 0;
  for (; b + 2 <= blocks; b += 2) {
    add(b, totals[0]);
    add(b + 1, totals[1]);
  }
  if (b < blocks) add(b, totals[0]);
  for (int r = 0; r < kRows; ++r) {
    dots[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(totals[0][r], totals[1][r])));
  }
}

template <class D, int kRows>
HWY_INLINE void Dots(D d, const NBitsWeight& w, int64_t n, const XRows<kRows>& x, float* dots) {
  if (w.bits == 4) {
    RowDots<D, kRows, 4>(d, w, n, x, dots);
  } else {
    RowDots<D, kRows, 8>(d, w, n, x, dots);
  }
}

float DotOf(const float* a, const float* b, int64_t n) {
  const DFull d;
  const int64_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// What zero points take from row n: factor * (weights * the sums of x's blocks).
struct ZeroWeights {
  const float* weights;
  float factor;
};

// scale * zero of each block; one zero point for all is the factor, which leaves the scales alone.
HWY_INLINE ZeroWeights ZeroWeightsOf(const NBitsWeight& w, int64_t n, float* memory) {
  const int64_t blocks = w.blocks();
  const float* scales = w.scales + n * blocks;
  if (w.zeros == nullptr && w.zero_codes == nullptr) return {scales, w.Zero(n, 0)};
  for (int64_t b = 0; b < blocks; ++b) memory[b] = scales[b] * w.Zero(n, b);
  return {memory, 1.0f};
}

template <class D, int kRows>
HWY_INLINE void Group(D d, const NBitsRows& x, int64_t first, const NBitsWeight& w, int64_t n,
                      const ZeroWeights& zeros, const OutputView& y) {
  const int64_t blocks = w.blocks();
  XRows<kRows> rows;
  for (int r = 0; r < kRows; ++r) rows.row[r] = x.data + (first + r) * blocks * w.block;
  float dots[kRows];
  Dots<D, kRows>(d, w, n, rows, dots);
  for (int r = 0; r < kRows; ++r) {
    y.data[(first + r) * y.stride + n] =
        dots[r] - zeros.factor * DotOf(zeros.weights, x.sums + (first + r) * blocks, blocks);
  }
}

template <class D>
HWY_INLINE void Stream(D d, const NBitsRows& x, const NBitsWeight& w, int64_t n_begin,
                       int64_t n_end, float* weights, const OutputView& y) {
  for (int64_t n = n_begin; n < n_end; ++n) {
    const ZeroWeights zeros = ZeroWeightsOf(w, n, weights);
    int64_t r = 0;
    for (; r + 4 <= x.m; r += 4) Group<D, 4>(d, x, r, w, n, zeros, y);
    if (r + 2 <= x.m) {
      Group<D, 2>(d, x, r, w, n, zeros, y);
      r += 2;
    }
    if (r < x.m) Group<D, 1>(d, x, r, w, n, zeros, y);
  }
}

void StreamAny(const NBitsRows& x, const NBitsWeight& w, int64_t n_begin, int64_t n_end,
               float* weights, const OutputView& y) {
  const int64_t run = w.bits == 4 ? w.block / 2 : w.block;
  if (run % static_cast<int64_t>(hn::Lanes(DFull())) == 0) {
    Stream(DFull(), x, w, n_begin, n_end, weights, y);
  } else {
    Stream(DSmall(), x, w, n_begin, n_end, weights, y);
  }
}

// One block as floats; of 4-bit codes `count` is even.
template <int kBits>
void DecodeCodes(const uint8_t* codes, int64_t count, float scale, float zero, float* to) {
  const DFull d;
  const hn::Rebind<uint8_t, DFull> d8;
  const hn::Rebind<int32_t, DFull> d32;
  const int64_t lanes = hn::Lanes(d);
  const auto scales = hn::Set(d, scale);
  const auto zeros = hn::Set(d, zero);
  const auto value = [&](auto code) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::ConvertTo(d, code), zeros), scales);
  };
  constexpr int64_t kPerByte = 8 / kBits;
  int64_t i = 0;
  for (; i + lanes * kPerByte <= count; i += lanes * kPerByte) {
    const auto code = hn::PromoteTo(d32, hn::LoadU(d8, codes + i / kPerByte));
    if constexpr (kBits == 4) {
      hn::StoreInterleaved2(value(hn::And(code, hn::Set(d32, 15))), value(hn::ShiftRight<4>(code)),
                            d, to + i);
    } else {
      hn::StoreU(value(code), d, to + i);
    }
  }
  for (; i < count; ++i) {
    const int code = kBits == 4 ? codes[i / 2] >> (i % 2 * 4) & 15 : codes[i];
    to[i] = (static_cast<float>(code) - zero) * scale;
  }
}

void DecodeBlocks(const NBitsWeight& w, int64_t row, float* to) {
  const uint8_t* codes = w.codes + row * w.row_bytes;
  const float* scales = w.scales + row * w.blocks();
  for (int64_t b = 0; b < w.blocks(); ++b) {
    const int64_t begin = b * w.block;
    const int64_t count = std::min(w.block, w.k - begin);
    const uint8_t* block = codes + begin * w.bits / 8;
    if (w.bits == 4) {
      DecodeCodes<4>(block, count, scales[b], w.Zero(row, b), to + begin);
    } else {
      DecodeCodes<8>(block, count, scales[b], w.Zero(row, b), to + begin);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(StreamAny);
HWY_EXPORT(DecodeBlocks);

void DecodeNBitsRow(const NBitsWeight& w, int64_t row, float* to) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(w, row, to);
}

bool NBitsStreams(const NBitsWeight& w) {
  const int64_t run = w.bits == 4 ? w.block / 2 : w.block;
  return run % 8 == 0 && (w.bits == 8 || w.block % 2 == 0);
}

void LayOutNBitsRow(const NBitsWeight& w, const float* x, float* row, float* sums) {
  const int64_t half = w.block / 2;
  for (int64_t b = 0; b < w.blocks(); ++b) {
    const float* from = x + b * w.block;
    float* to = row + b * w.block;
    const int64_t count = std::min(w.block, w.k - b * w.block);
    float sum = 0;
    std::fill(to, to + w.block, 0.0f);
    for (int64_t i = 0; i < count; ++i) {
      sum += from[i];
      to[w.bits == 4 ? i / 2 + i % 2 * half : i] = from[i];
    }
    sums[b] = sum;
  }
}

void StreamNBits(const NBitsRows& x, const NBitsWeight& w, int64_t n_begin, int64_t n_end,
                 float* weights, const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(StreamAny)(x, w, n_begin, n_end, weights, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
