// SPDX-License-Identifier: Apache-2.0
// Vector codecs of TurboQuant slots, for kernels: see turboquant_format.h for what the bytes mean.
// Include inside a file that hwy/foreach_target.h recompiles.
//
// Keys and values of a slot are rows of two caches with the same strides: RowAddress::data points
// at the codes, RowAddress::scale at the float16 fields behind them. Loads may read up to four
// bytes behind the codes that they are asked for, which every slot has.
#if defined(PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_CODEC_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_CODEC_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_CODEC_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef PF_PERMUTES_FLOATS
#if HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#define PF_PERMUTES_FLOATS 1
#else
#define PF_PERMUTES_FLOATS 0
#endif

// 2^bits floats, looked up by the low bits of 32-bit lanes; higher bits are ignored. In registers
// where an instruction permutes them by index.
template <int bits>
class FloatTable {
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  using V = hn::Vec<DF>;
  static constexpr size_t kSize = size_t{1} << bits;
  static constexpr size_t kLanes = hn::MaxLanes(DF());
  // Shorter tables are repeated.
  static constexpr size_t kVectors = kSize > kLanes ? kSize / kLanes : 1;

 public:
  explicit HWY_INLINE FloatTable(const float* HWY_RESTRICT values) {
    alignas(64) float repeated[kVectors * kLanes];
    for (size_t i = 0; i < kVectors * kLanes; ++i) repeated[i] = values[i % kSize];
    for (size_t i = 0; i < kVectors; ++i) vectors_[i] = hn::Load(DF(), repeated + i * kLanes);
  }

  HWY_INLINE V Get(hn::Vec<DI> codes) const {
    const DF df;
#if PF_PERMUTES_FLOATS
    const V first = hn::TableLookupLanes(vectors_[0], Indices(codes));
    if constexpr (kVectors == 1) {
      return first;
    } else {
      // Bit 3 of the code chooses, as the sign of a lane.
      static_assert(kVectors == 2 && kLanes == 8);
      const V second = hn::TableLookupLanes(vectors_[1], Indices(codes));
      return hn::IfNegativeThenElse(hn::BitCast(df, hn::ShiftLeft<28>(codes)), second, first);
    }
#else
    alignas(64) int32_t indices[kLanes];
    alignas(64) float values[kLanes];
    alignas(64) float table[kVectors * kLanes];
    hn::Store(codes, DI(), indices);
    for (size_t i = 0; i < kVectors; ++i) hn::Store(vectors_[i], df, table + i * kLanes);
    for (size_t i = 0; i < kLanes; ++i) {
      values[i] = table[static_cast<size_t>(indices[i]) % kSize];
    }
    return hn::Load(df, values);
#endif
  }

 private:
#if PF_PERMUTES_FLOATS
  // The instructions ignore higher bits, which IndicesFromVec does not allow.
  static HWY_INLINE auto Indices(hn::Vec<DI> codes) {
    decltype(hn::IndicesFromVec(DF(), codes)) indices;
    indices.raw = codes.raw;
    return indices;
  }
#endif

  V vectors_[kVectors];
};

// Codes of `bits` bits of consecutive elements in 32-bit lanes, with the bits of other elements
// above them. The first element's code starts at bit `start` of p[0].
template <int bits, class DI>
HWY_INLINE hn::Vec<DI> CodeLanes(DI di, const uint8_t* HWY_RESTRICT p, uint32_t start) {
  [[maybe_unused]] constexpr size_t kLanes = hn::MaxLanes(DI());
  const auto word = [](const uint8_t* from) HWY_ATTR {
    uint32_t bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    return bytes;
  };
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(di, static_cast<int32_t>(word(p) >> start));
#else
  const hn::RebindToUnsigned<DI> du;
  if constexpr (kLanes <= 8) {
    const auto shifts = hn::Iota(du, 0) * hn::Set(du, uint32_t{bits}) + hn::Set(du, start);
    return hn::BitCast(di, hn::Set(du, word(p)) >> shifts);
  } else {
    static_assert(kLanes == 16);
    const hn::Half<decltype(du)> half;  // of whole bytes each: start is 0
    const auto shifts = hn::Iota(half, 0) * hn::Set(half, uint32_t{bits});
    return hn::BitCast(di, hn::Combine(du, hn::Set(half, word(p + bits)) >> shifts,
                                       hn::Set(half, word(p)) >> shifts));
  }
#endif
}

// A float16 at p.
HWY_INLINE float LoadHalf(const uint8_t* HWY_RESTRICT p) {
  uint16_t code;
  std::memcpy(&code, p, sizeof(code));
#if PF_HAS_F16C
  const hn::Full128<float> d4;
  const hn::Rebind<uint16_t, decltype(d4)> du16;
  const hn::Rebind<hwy::float16_t, decltype(d4)> df16;
  return hn::GetLane(hn::PromoteTo(d4, hn::BitCast(df16, hn::Set(du16, code))));
#else
  return DecodeFloat<Float16Format>(code);
#endif
}

// The numbers 0, 1, 2, ... that value codes mean.
inline constexpr float kTurboValueCodes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};

// A FloatTable of them. Where a table takes more than one register, a conversion is cheaper.
template <int bits>
class NumberTable {
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  static constexpr bool kConverts = PF_PERMUTES_FLOATS && (1 << bits) > hn::MaxLanes(DF());

 public:
  HWY_INLINE NumberTable() : table_(kTurboValueCodes) {}
  HWY_INLINE hn::Vec<DF> Get(hn::Vec<DI> codes) const {
    if constexpr (!kConverts) return table_.Get(codes);
    return hn::ConvertTo(DF(), hn::And(codes, hn::Set(DI(), (1 << bits) - 1)));
  }

 private:
  FloatTable<bits> table_;
};

// Codes as elements of a table.
template <int bits, class Table = FloatTable<bits>>
struct TableCodec {
  static_assert(bits == 3 || bits == 4);
  using Element = uint8_t;
  static constexpr bool kRowScale = true;
  static constexpr float kUnit = 1.0f;
  // LoadTwo gives elements d, d + 2, ... and d + 1, d + 3, ...
  static constexpr bool kEvenOdd = PF_PERMUTES_FLOATS && (HWY_TARGET <= HWY_AVX3 || bits == 4);

  Table table;

  explicit HWY_INLINE TableCodec(const Table& elements) : table(elements) {}

  // d is a multiple of Lanes(df).
  template <class DF, class Row>
  HWY_INLINE hn::Vec<DF> Load(DF /*df*/, const Row& row, size_t d) const {
    const hn::RebindToSigned<DF> di;
    return table.Get(CodeLanes<bits>(di, row.data + d * bits / 8, d * bits % 8));
  }
  template <class DF, class Row>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const Row& row, size_t d, size_t count) const {
    const hn::RebindToSigned<DF> di;
    alignas(16) uint8_t buffer[16] = {};
    const size_t first = d * bits / 8;
    count = std::min(count, hn::Lanes(df));
    const size_t bytes = ((d + count) * bits + 7) / 8 - first;
    std::memcpy(buffer, row.data + first, std::min(bytes, sizeof(buffer)));
    return hn::IfThenElseZero(hn::FirstN(df, count),
                              table.Get(CodeLanes<bits>(di, buffer, d * bits % 8)));
  }
  template <class DF, class Row, class V>
  HWY_INLINE void LoadTwo(DF df, const Row& row, size_t d, V& a, V& b) const {
    if constexpr (kEvenOdd) {
      const auto pairs = PairLanes(df, row.data + d * bits / 8);
      a = table.Get(pairs);
      b = table.Get(hn::ShiftRight<bits>(pairs));
    } else {
      a = Load(df, row, d);
      b = Load(df, row, d + hn::Lanes(df));
    }
  }

#if HWY_TARGET != HWY_SCALAR

 protected:
  // The codes of two elements in the low bits of each lane.
  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> PairLanes(DF /*df*/, const uint8_t* p) {
    const hn::RebindToSigned<DF> di;
    if constexpr (bits == 4) {
      const hn::Rebind<uint8_t, DF> du8;
      return hn::PromoteTo(di, hn::LoadU(du8, p));
    } else {
      // A block of four lanes takes three bytes of the twelve: all to each lane, then shifted.
      const hn::RebindToUnsigned<DF> du;
      const hn::Repartition<uint8_t, DF> du8;
      alignas(16) uint8_t bytes[16];
      std::memcpy(bytes, p, sizeof(bytes));
      const auto all = hn::LoadDup128(du8, bytes);
      alignas(64) static constexpr uint32_t kBytes[16] = {
          0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x06050403, 0x06050403,
          0x06050403, 0x06050403, 0x09080706, 0x09080706, 0x09080706, 0x09080706,
          0x0C0B0A09, 0x0C0B0A09, 0x0C0B0A09, 0x0C0B0A09};
      alignas(64) static constexpr uint32_t kShifts[16] = {0, 6, 12, 18, 0, 6, 12, 18,
                                                           0, 6, 12, 18, 0, 6, 12, 18};
      const auto words = hn::TableLookupBytes(all, hn::BitCast(du8, hn::Load(du, kBytes)));
      return hn::BitCast(di, hn::BitCast(du, words) >> hn::Load(du, kShifts));
    }
  }
#endif
};

// Key rows. Elements are Load() * row.scale without the norm correction; with it, they are that
// divided by the length of the vector of Load(), which is left to the caller (kUnitLength).
template <int bits>
struct TurboKeyCodec : TableCodec<bits> {
  static constexpr bool kUnitLength = true;
  static constexpr bool kRowOffset = false;
  struct Row {
    const uint8_t* data;
    float scale;
  };

  bool norm_correction;

  HWY_INLINE TurboKeyCodec(const float* centroids, bool correct)
      : TableCodec<bits>(FloatTable<bits>(centroids)), norm_correction(correct) {}
  HWY_INLINE Row Open(RowAddress row) const { return {row.data, LoadHalf(row.scale)}; }
};

// The same with the correction in row.scale: for callers that need no more than a row at a time.
template <int bits>
struct TurboKeyRowCodec : TurboKeyCodec<bits> {
  static constexpr bool kUnitLength = false;
  using Row = typename TurboKeyCodec<bits>::Row;

  size_t size;

  HWY_INLINE TurboKeyRowCodec(const float* centroids, bool correct, size_t head_size)
      : TurboKeyCodec<bits>(centroids, correct), size(head_size) {}
  HWY_INLINE Row Open(RowAddress row) const {
    Row opened = TurboKeyCodec<bits>::Open(row);
    if (!this->norm_correction) return opened;
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    auto squares = hn::Zero(df);
    size_t d = 0;
    for (; d + lanes <= size; d += lanes) {
      const auto c = this->Load(df, opened, d);
      squares = hn::MulAdd(c, c, squares);
    }
    if (d < size) {
      const auto c = this->LoadN(df, opened, d, size - d);
      squares = hn::MulAdd(c, c, squares);
    }
    const float sum = hn::GetLane(hn::SumOfLanes(df, squares));
    opened.scale /= std::sqrt(sum + kTurboQuantSquareFloor);
    return opened;
  }
};

// Value rows. Elements are Load() * row.scale + row.offset.
template <int bits>
struct TurboValueCodec : TableCodec<bits, NumberTable<bits>> {
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = true;
  struct Row {
    const uint8_t* data;
    float scale;
    float offset;
  };

  HWY_INLINE TurboValueCodec() : TableCodec<bits, NumberTable<bits>>(NumberTable<bits>()) {}
  HWY_INLINE Row Open(RowAddress row) const {
    return {row.data, LoadHalf(row.scale), LoadHalf(row.scale + 2)};
  }
#if PF_HAS_F16C
  // Scales and offsets of four rows whose fields are at fields[0, 4).
  HWY_INLINE void StoreScales(const uint8_t* const* fields, float* HWY_RESTRICT scales,
                              float* HWY_RESTRICT offsets) const {
    const hn::CappedTag<float, 8> d8;
    const hn::Half<decltype(d8)> d4;
    const hn::Rebind<hwy::float16_t, decltype(d8)> df16;
    const hn::Repartition<uint64_t, decltype(df16)> du64;
    const auto two = [&](size_t i) HWY_ATTR {
      uint32_t first, second;
      std::memcpy(&first, fields[i], sizeof(first));
      std::memcpy(&second, fields[i + 1], sizeof(second));
      return hn::Set(du64, first | uint64_t{second} << 32);
    };
    const auto halves = hn::BitCast(df16, hn::InterleaveLower(du64, two(0), two(2)));
    const auto floats = hn::PromoteTo(d8, halves);
    hn::StoreU(hn::LowerHalf(d4, hn::ConcatEven(d8, floats, floats)), d4, scales);
    hn::StoreU(hn::LowerHalf(d4, hn::ConcatOdd(d8, floats, floats)), d4, offsets);
  }
#endif
};

// The same with elements complete.
template <int bits>
struct TurboValueRowCodec : TurboValueCodec<bits> {
  static constexpr bool kRowScale = false;
  static constexpr bool kRowOffset = false;
  using Row = typename TurboValueCodec<bits>::Row;

  // Implicit constructors are compiled for no SIMD target.
  HWY_INLINE TurboValueRowCodec() {}

  template <class DF>
  HWY_INLINE hn::Vec<DF> Load(DF df, const Row& row, size_t d) const {
    return Complete(df, row, TurboValueCodec<bits>::Load(df, row, d));
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const Row& row, size_t d, size_t count) const {
    return hn::IfThenElseZero(hn::FirstN(df, count),
                              Complete(df, row, TurboValueCodec<bits>::LoadN(df, row, d, count)));
  }

 private:
  // The product is exact, so that it does not matter whether the sum is fused.
  template <class DF, class V = hn::Vec<DF>>
  static HWY_INLINE V Complete(DF df, const Row& row, V codes) {
    return hn::MulAdd(codes, hn::Set(df, row.scale), hn::Set(df, row.offset));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
