// SPDX-License-Identifier: Apache-2.0
// What is left over behind whole vectors is multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#include "pagefuse/ops/kernels/linalg/nbits_hwy.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DFull = hn::ScalableTag<float>;
using DSmall = hn::CappedTag<float, 8>;  // for blocks of 16: eight even and eight odd elements

// Rows of x.
template <int kRows>
struct XRows {
  const float* row[kRows];
};

// Rows of W.
template <int kCols>
struct WRows {
  const uint8_t* codes[kCols];
  const float* scales[kCols];
};

// Two codes in the low bits of each lane as floats. In a register a vector is a table of them.
template <class D>
HWY_INLINE void NibbleFloats(D d, hn::Vec<hn::RebindToSigned<D>> pair, hn::Vec<D>& even,
                             hn::Vec<D>& odd) {
  const hn::RebindToSigned<D> d32;
  const auto high = hn::ShiftRight<4>(pair);
#if HWY_TARGET <= HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) {
    const auto table = hn::Iota(d, 0.0f);
    even = hn::Vec<D>{_mm512_permutexvar_ps(pair.raw, table.raw)};  // of four bits of the index
    odd = hn::Vec<D>{_mm512_permutexvar_ps(high.raw, table.raw)};
    return;
  }
#endif
  even = hn::ConvertTo(d, hn::And(pair, hn::Set(d32, 15)));
  odd = hn::ConvertTo(d, high);
}

// Calls f(i) for i = 0, step, 2 step, ... below n. With kSteps, which is not 0 then, it is known
// when compiled how often.
template <int kSteps, class F>
HWY_INLINE void ForSteps(int64_t n, int64_t step, const F& f) {
  if constexpr (kSteps > 0) {
    for (int s = 0; s < kSteps; ++s) f(s * step);
  } else {
    for (int64_t i = 0; i < n; i += step) f(i);
  }
}

// sums[c][r] += the block of w[c] that begins at element `at` * that of x[r], 4 bits. kSteps: see
// ForSteps.
template <int kSteps, class D, int kCols, int kRows>
HWY_INLINE void AddNibbles(D d, const WRows<kCols>& w, int64_t block, const XRows<kRows>& x,
                           int64_t at, hn::Vec<D> (&sums)[kCols][kRows]) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const int64_t lanes = hn::Lanes(d);
  const int64_t half = kSteps > 0 ? kSteps * lanes : block / 2;
  ForSteps<kSteps>(half, lanes, [&](int64_t i) HWY_ATTR {
    hn::Vec<D> even[kCols];
    hn::Vec<D> odd[kCols];
    for (int c = 0; c < kCols; ++c) {
      const auto pair = hn::PromoteTo(d32, hn::LoadU(d8, w.codes[c] + (at >> 1) + i));
      NibbleFloats(d, pair, even[c], odd[c]);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto x_even = hn::LoadU(d, x.row[r] + at + i);
      const auto x_odd = hn::LoadU(d, x.row[r] + at + half + i);
      for (int c = 0; c < kCols; ++c) {
        sums[c][r] = hn::MulAdd(even[c], x_even, sums[c][r]);
        sums[c][r] = hn::MulAdd(odd[c], x_odd, sums[c][r]);
      }
    }
  });
}

// The same, 8 bits.
template <int kSteps, class D, int kCols, int kRows>
HWY_INLINE void AddBytes(D d, const WRows<kCols>& w, int64_t block, const XRows<kRows>& x,
                         int64_t at, hn::Vec<D> (&sums)[kCols][kRows]) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  ForSteps<kSteps>(block, hn::Lanes(d), [&](int64_t i) HWY_ATTR {
    hn::Vec<D> code[kCols];
    for (int c = 0; c < kCols; ++c) {
      code[c] = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, w.codes[c] + at + i)));
    }
    for (int r = 0; r < kRows; ++r) {
      const auto from = hn::LoadU(d, x.row[r] + at + i);
      for (int c = 0; c < kCols; ++c) sums[c][r] = hn::MulAdd(code[c], from, sums[c][r]);
    }
  });
}

template <class D, int kCols, int kRows>
HWY_INLINE void Clear(D d, hn::Vec<D> (&sums)[kCols][kRows]) {
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(d);
  }
}

// totals[c][r] += scale * (block b of w[c], which begins at element `at`, * that of x[r]).
template <int kBits, int kSteps, class D, int kCols, int kRows>
HWY_INLINE void AddBlock(D d, const WRows<kCols>& w, int64_t block, int64_t b, int64_t at,
                         const XRows<kRows>& x, hn::Vec<D> (&totals)[kCols][kRows]) {
  hn::Vec<D> sums[kCols][kRows];
  Clear(d, sums);
  if constexpr (kBits == 4) {
    AddNibbles<kSteps>(d, w, block, x, at, sums);
  } else {
    AddBytes<kSteps>(d, w, block, x, at, sums);
  }
  for (int c = 0; c < kCols; ++c) {
    const auto scale = hn::Set(d, w.scales[c][b]);
    for (int r = 0; r < kRows; ++r) totals[c][r] = hn::MulAdd(sums[c][r], scale, totals[c][r]);
  }
}

// dots[c][r] = sum over blocks of scale * (codes of row n + c * x[r]), without zero points. Where a
// row is alone, two running sums: one block's addition does not wait for the one before.
template <int kBits, int kSteps, class D, int kCols, int kRows>
HWY_INLINE void RowDots(D d, const NBitsWeight& w, int64_t n, const XRows<kRows>& x,
                        float (&dots)[kCols][kRows]) {
  const int64_t blocks = w.blocks();
  WRows<kCols> rows;
  for (int c = 0; c < kCols; ++c) {
    rows.codes[c] = w.codes + (n + c) * w.row_bytes;
    rows.scales[c] = w.scales + (n + c) * blocks;
  }
  hn::Vec<D> totals[kCols][kRows];
  Clear(d, totals);
  constexpr int kHalves = kBits == 4 ? 2 : 1;
  const int64_t block =
      kSteps > 0 ? kSteps * kHalves * static_cast<int64_t>(hn::Lanes(d)) : w.block;
  int64_t b = 0;
  int64_t at = 0;
  if constexpr (kCols == 1) {
    hn::Vec<D> others[kCols][kRows];
    Clear(d, others);
    for (; b + 2 <= blocks; b += 2, at += 2 * block) {
      AddBlock<kBits, kSteps>(d, rows, block, b, at, x, totals);
      AddBlock<kBits, kSteps>(d, rows, block, b + 1, at + block, x, others);
    }
    for (int r = 0; r < kRows; ++r) totals[0][r] = hn::Add(totals[0][r], others[0][r]);
  }
  constexpr int64_t kCacheLine = 64;
  const int64_t step_bytes = block * kCols * kBits / 8;
  // The next rows of W, which follow these, are asked for as far as these have been read.
  const uint8_t* next = n + 2 * kCols <= w.n ? rows.codes[0] + kCols * w.row_bytes : nullptr;
  for (; b < blocks; ++b, at += block) {
    AddBlock<kBits, kSteps>(d, rows, block, b, at, x, totals);
    for (int64_t i = 0; next != nullptr && i < step_bytes; i += kCacheLine) {
      hwy::Prefetch(next + b * step_bytes + i);
    }
    if (next != nullptr) hwy::Prefetch(rows.scales[0] + kCols * (blocks + b));
  }
  for (int c = 0; c < kCols; ++c) {
    for (int r = 0; r < kRows; ++r) dots[c][r] = hn::GetLane(hn::SumOfLanes(d, totals[c][r]));
  }
}

template <class D, int kCols, int kRows>
HWY_INLINE void Dots(D d, const NBitsWeight& w, int64_t n, const XRows<kRows>& x,
                     float (&dots)[kCols][kRows]) {
  const int64_t lanes = hn::Lanes(d);
  if (w.bits == 4) {
    // Blocks of 32, the usual ones, where lanes are 16.
    if (w.block == 2 * lanes) return RowDots<4, 1>(d, w, n, x, dots);
    RowDots<4, 0>(d, w, n, x, dots);
  } else {
    if (w.block == 2 * lanes) return RowDots<8, 2>(d, w, n, x, dots);
    RowDots<8, 0>(d, w, n, x, dots);
  }
}

HWY_INLINE float DotOf(const float* a, const float* b, int64_t n) {
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

// Rows [first, first + kRows) of x against rows [n, n + kCols) of W.
template <class D, int kCols, int kRows>
HWY_INLINE void Tile(D d, const NBitsRows& x, int64_t first, const NBitsWeight& w, int64_t n,
                     float* weights, const OutputView& y) {
  const int64_t blocks = w.blocks();
  XRows<kRows> rows;
  for (int r = 0; r < kRows; ++r) rows.row[r] = x.data + (first + r) * blocks * w.block;
  float zero[kCols][kRows];
  for (int c = 0; c < kCols; ++c) {
    const ZeroWeights zeros = ZeroWeightsOf(w, n + c, weights);
    for (int r = 0; r < kRows; ++r) {
      zero[c][r] = zeros.factor * DotOf(zeros.weights, x.sums + (first + r) * blocks, blocks);
    }
  }
  float dots[kCols][kRows];
  Dots<D, kCols, kRows>(d, w, n, rows, dots);
  for (int c = 0; c < kCols; ++c) {
    for (int r = 0; r < kRows; ++r) {
      y.data[(first + r) * y.stride + n + c] = dots[c][r] - zero[c][r];
    }
  }
}

// Rows [first, first + kRows) of x against all of W's: these few stay in the first-level cache, and
// several rows of W share what is read of them.
template <class D, int kRows>
HWY_INLINE void Group(D d, const NBitsRows& x, int64_t first, const NBitsWeight& w, int64_t n_begin,
                      int64_t n_end, float* weights, const OutputView& y) {
  constexpr int kSums = HWY_TARGET <= HWY_AVX3 ? 8 : 4;  // and as many totals, in registers
  constexpr int kCols = HWY_MIN(kSums / kRows, 4);
  int64_t n = n_begin;
  for (; n + kCols <= n_end; n += kCols) Tile<D, kCols, kRows>(d, x, first, w, n, weights, y);
  for (; n < n_end; ++n) Tile<D, 1, kRows>(d, x, first, w, n, weights, y);
}

template <class D>
HWY_INLINE void Stream(D d, const NBitsRows& x, const NBitsWeight& w, int64_t n_begin,
                       int64_t n_end, float* weights, const OutputView& y) {
  int64_t r = 0;
  for (; r + 4 <= x.m; r += 4) Group<D, 4>(d, x, r, w, n_begin, n_end, weights, y);
  if (r + 2 <= x.m) {
    Group<D, 2>(d, x, r, w, n_begin, n_end, weights, y);
    r += 2;
  }
  if (r < x.m) Group<D, 1>(d, x, r, w, n_begin, n_end, weights, y);
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

// One block as floats; codes of less than a byte begin with one.
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
    } else if constexpr (kBits == 2) {
      const auto low = hn::Set(d32, 3);
      hn::StoreInterleaved4(value(hn::And(code, low)), value(hn::And(hn::ShiftRight<2>(code), low)),
                            value(hn::And(hn::ShiftRight<4>(code), low)),
                            value(hn::ShiftRight<6>(code)), d, to + i);
    } else {
      hn::StoreU(value(code), d, to + i);
    }
  }
  for (; i < count; ++i) {
    const int code = codes[i / kPerByte] >> (i % kPerByte * kBits) & ((1 << kBits) - 1);
    to[i] = (static_cast<float>(code) - zero) * scale;
  }
}

// Half of the sums that a tile can have make it read twice as much.
int64_t MostStreamedRows() { return HWY_TARGET <= HWY_AVX3 ? 48 : 16; }

void DecodeBlocks(const NBitsWeight& w, int64_t row, float* to) {
  const uint8_t* codes = w.codes + row * w.row_bytes;
  const float* scales = w.scales + row * w.blocks();
  for (int64_t b = 0; b < w.blocks(); ++b) {
    const int64_t begin = b * w.block;
    const int64_t count = std::min(w.block, w.k - begin);
    const uint8_t* block = codes + begin * w.bits / 8;
    if (w.bits == 2) {
      DecodeCodes<2>(block, count, scales[b], w.Zero(row, b), to + begin);
    } else if (w.bits == 4) {
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
HWY_EXPORT(MostStreamedRows);
HWY_EXPORT(DecodeBlocks);

void DecodeNBitsRow(const NBitsWeight& w, int64_t row, float* to) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(w, row, to);
}

int64_t NBitsStreamedRows() { return HWY_DYNAMIC_DISPATCH(MostStreamedRows)(); }

bool NBitsStreams(const NBitsWeight& w) {
  if (w.bits == 2) return false;
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
