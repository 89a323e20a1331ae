// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // VNNI
// Rows of x by columns of W, a lane each: of few rows W goes by once, front to back; of many, a chunk
// of some columns stays in the first-level cache.
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/ask_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8-inl.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

constexpr int kVectors = 2;                   // of columns at a time
constexpr int64_t kStep = kVectors * kLanes;  // columns of these
constexpr int64_t kChunk = Int8Rows::kChunk;
constexpr int64_t kXStride = kChunk * kInt8Block;  // bytes from a row of x to the next, in a chunk

// The vectors of a step: where W has them. One that is missing at the end is the first one again.
struct Columns {
  HWY_INLINE Columns(const NBitsLanes& w, int64_t column) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kLanes, last = w.groups() * NBitsLanes::kLanes;
      const int64_t lane = at < last ? at : column;
      group[v] = lane / NBitsLanes::kLanes;
      offset[v] = lane % NBitsLanes::kLanes;
      codes[v] = w.codes + NBitsLanes::At(group[v], w.words(), 0) + offset[v];
    }
  }
  HWY_INLINE int64_t Factor(const NBitsLanes& w, int v, int64_t b) const {
    return NBitsLanes::At(group[v], w.blocks(), b) + offset[v];
  }

  const uint32_t* codes[kVectors];
  int64_t group[kVectors], offset[kVectors];
};

// Blocks of x by those of W.
struct Call {
  const Int8Rows& x;
  const NBitsLanes& w;
  int shift;  // x's blocks in one of W's, as a power of two
  int64_t b_begin, b_end;
  bool adds;  // to y, which has the blocks before these
  // The row of x with which memory is asked for the codes behind these blocks, and where those are in
  // the first group of columns.
  int64_t asking_row;
  const uint32_t* coming;
};

// Asks for the codes of block i of what comes.
template <int kBits>
HWY_INLINE void AskForBlock(const Call& call, int64_t i) {
  constexpr int64_t kGroups = HWY_MAX(kStep / NBitsLanes::kLanes, 1);
  constexpr int64_t kWords = kBits;
  for (int64_t g = 0; g < kGroups; ++g) {
    const uint32_t* block =
        call.coming + NBitsLanes::At(g, call.w.words(), 0) + i * kWords * NBitsLanes::kLanes;
    for (int64_t word = 0; word < kWords; ++word) AskAhead(block + word * NBitsLanes::kLanes);
  }
}

// sums[r][v] += the products of the q-th four of a block of x with `codes`.
template <int kBits, int kRows>
HWY_INLINE void AddFours(const typename Products<kBits>::Codes (&codes)[kVectors], const int8_t* x,
                         V32 (&sums)[kRows][kVectors]) {
  for (int r = 0; r < kRows; ++r) {
    int32_t word;
    std::memcpy(&word, x + r * kXStride, sizeof(word));
    const V8 all = hn::BitCast(D8(), hn::Set(D32(), word));
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Products<kBits>::Add(sums[r][v], codes[v], all);
  }
}

// sums[r][v] = the products of block `b` with rows of x, whose first one's is the `unit`-th.
template <int kBits, int kRows>
HWY_INLINE void BlockSums(const Columns& columns, int64_t b, const Int8Rows& of, int64_t unit,
                          V32 (&sums)[kRows][kVectors]) {
  constexpr int64_t kWords = kBits;  // of 32 codes
  const int8_t* x = of.codes + unit * kInt8Block;
  const int32_t* starts = of.starts + unit;
  for (int r = 0; r < kRows; ++r) {
    for (V32& sum : sums[r]) sum = Products<kBits>::Begin(starts[r * kChunk]);
  }
  for (int64_t word = 0; word < kWords; ++word) {
    VU8 bytes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const uint32_t* from = columns.codes[v] + (b * kWords + word) * NBitsLanes::kLanes;
      bytes[v] = hn::BitCast(DU8(), hn::LoadU(hn::RebindToUnsigned<D32>(), from));
    }
    typename Products<kBits>::Codes codes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = Products<kBits>::Of(kBits == 4 ? LowCodes(bytes[v]) : bytes[v]);
    }
    AddFours<kBits>(codes, x + word * 4, sums);
    if constexpr (kBits == 8) continue;
    for (int v = 0; v < kVectors; ++v) codes[v] = Products<kBits>::Of(HighCodes(bytes[v]));
    AddFours<kBits>(codes, x + 16 + word * 4, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    for (V32& sum : sums[r]) sum = Products<kBits>::Finish(sum, starts[r * kChunk]);
  }
}

HWY_INLINE VF ScaleAt(const NBitsLanes& w, int64_t at) {
  if (w.half_scales != nullptr) return LoadToFloat(DF(), w.half_scales + at);
  return hn::LoadU(DF(), w.scales + at);
}

// What zero points are off the centre of codes.
template <int kBits>
HWY_INLINE VF ZeroAt(const NBitsLanes& w, int64_t at) {
  const VF centre = hn::Set(DF(), static_cast<float>(Centre<kBits>()));
  if (w.zeros != nullptr) return hn::Sub(hn::LoadU(DF(), w.zeros + at), centre);
  const hn::Rebind<uint8_t, DF> d8;
  const auto codes = hn::PromoteTo(D32(), hn::LoadU(d8, w.zero_codes + at));
  return hn::Sub(hn::ConvertTo(DF(), codes), centre);
}

// totals += the sums of block `b`, times both sides' scales; `unit` is where the first row has its.
template <int kBits, bool kCentred, int kRows>
HWY_INLINE void AddSums(const Call& call, const Columns& columns, int64_t b, int64_t unit,
                        const V32 (&sums)[kRows][kVectors], VF (&totals)[kRows][kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = columns.Factor(call.w, v, b >> call.shift);
    const VF scale = ScaleAt(call.w, at);
    VF zero = scale;
    if constexpr (!kCentred) zero = hn::Mul(scale, ZeroAt<kBits>(call.w, at));
    for (int r = 0; r < kRows; ++r) {
      const int64_t of_row = unit + r * kChunk;
      const VF factor = hn::Mul(scale, hn::Set(DF(), call.x.units[of_row]));
      // A whole number below 2^24: exact.
      totals[r][v] = hn::MulAdd(hn::ConvertTo(DF(), sums[r][v]), factor, totals[r][v]);
      if constexpr (kCentred) continue;
      totals[r][v] = hn::NegMulAdd(zero, hn::Set(DF(), call.x.unit_sums[of_row]), totals[r][v]);
    }
  }
}

// Rows [first, first + kRows) of x by the columns of a step, to y.
template <int kBits, bool kCentred, int kRows>
HWY_INLINE void MultiplyStep(const Call& call, const Columns& columns, int64_t first,
                             const OutputView& y) {
  const int64_t start = call.x.At(first, call.b_begin);
  VF totals[kRows][kVectors];
  for (auto& row : totals) {
    for (auto& total : row) total = hn::Zero(DF());
  }
  for (int64_t b = call.b_begin; b < call.b_end; ++b) {
    const int64_t unit = start + b - call.b_begin;
    if (first == call.asking_row) AskForBlock<kBits>(call, b - call.b_begin);
    V32 sums[kRows][kVectors];
    BlockSums<kBits>(columns, b, call.x, unit, sums);
    AddSums<kBits, kCentred>(call, columns, b, unit, sums, totals);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = y.data + r * y.stride + v * kLanes;
      const VF before = call.adds ? hn::LoadU(DF(), to) : hn::Zero(DF());
      hn::StoreU(hn::Add(before, totals[r][v]), DF(), to);
    }
  }
}

// The same where only `count` columns are of y.
template <int kBits, bool kCentred, int kRows>
HWY_INLINE void MultiplyRows(const Call& call, const Columns& columns, int64_t first, int64_t count,
                             const OutputView& y) {
  if (count >= kStep) return MultiplyStep<kBits, kCentred, kRows>(call, columns, first, y);
  HWY_ALIGN float rest[kRows * kStep] = {};
  for (int64_t r = 0; call.adds && r < kRows; ++r) {
    std::copy_n(y.data + r * y.stride, count, rest + r * kStep);
  }
  MultiplyStep<kBits, kCentred, kRows>(call, columns, first, {rest, kStep});
  for (int64_t r = 0; r < kRows; ++r) std::copy_n(rest + r * kStep, count, y.data + r * y.stride);
}

// All rows of the part by the columns of a step.
template <int kBits, bool kCentred>
HWY_INLINE void MultiplyColumns(const Call& call, const Columns& columns, const Int8Part& part,
                                int64_t count, const OutputView& y) {
  constexpr int kRows = 6;
  const auto to = [&](int64_t r) {
    return OutputView{y.data + (r - part.row_begin) * y.stride, y.stride};
  };
  int64_t r = part.row_begin;
  for (; r + kRows <= part.row_end; r += kRows) {
    MultiplyRows<kBits, kCentred, kRows>(call, columns, r, count, to(r));
  }
  for (; r + 4 <= part.row_end; r += 4) {
    MultiplyRows<kBits, kCentred, 4>(call, columns, r, count, to(r));
  }
  for (; r + 2 <= part.row_end; r += 2) {
    MultiplyRows<kBits, kCentred, 2>(call, columns, r, count, to(r));
  }
  if (r < part.row_end) MultiplyRows<kBits, kCentred, 1>(call, columns, r, count, to(r));
}

template <int kBits, bool kCentred>
void Multiply(const Int8Rows& x, const NBitsLanes& w, const Int8Part& part, const OutputView& y) {
  const int64_t blocks = w.blocks() * w.block / kInt8Block;
  const int64_t begin = part.group_begin * NBitsLanes::kLanes;
  const int64_t end = std::min(part.group_end * NBitsLanes::kLanes, w.n);
  for (int64_t column = begin; column < end; column += kStep) {
    const Columns columns(w, column);
    for (int64_t b = 0; b < blocks; b += kChunk) {
      const int64_t b_end = std::min(b + kChunk, blocks);
      const bool last = b_end == blocks;
      const int64_t next = (last ? column + kStep : column) / NBitsLanes::kLanes;
      const Call call{x,
                      w,
                      BlocksShift(w.block),
                      b,
                      b_end,
                      b > 0,
                      part.row_begin,
                      w.codes + NBitsLanes::At(next, w.words(), last ? 0 : b_end * kBits)};
      MultiplyColumns<kBits, kCentred>(call, columns, part, end - column,
                                       {y.data + column - begin, y.stride});
    }
  }
}

void MultiplyAny(const Int8Rows& x, const NBitsLanes& w, const Int8Part& part,
                 const OutputView& y) {
  if (w.bits == 4) {
    (w.centred() ? Multiply<4, true> : Multiply<4, false>)(x, w, part, y);
  } else {
    (w.centred() ? Multiply<8, true> : Multiply<8, false>)(x, w, part, y);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(MultiplyAny);

void MultiplyInt8(const Int8Rows& x, const NBitsLanes& w, const Int8Part& part,
                  const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(MultiplyAny)(x, w, part, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
