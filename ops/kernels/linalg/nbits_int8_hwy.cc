// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // VNNI
// A few rows: W goes by once, front to back.
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8-inl.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kAhead = 4096;  // bytes of W that are asked for before they are read

// Codes in the low and in the high half of each byte.
HWY_INLINE VU8 LowCodes(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 0x0F)); }
HWY_INLINE VU8 HighCodes(VU8 bytes) {
  const hn::Repartition<uint16_t, DF> d16;
  return LowCodes(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

// The first `count` lanes from memory that need not go on behind them; the others are 0.
HWY_INLINE VF LoadFirst(const float* from, int64_t count) {
  if (count >= kLanes) return hn::LoadU(DF(), from);
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(DF(), static_cast<size_t>(count)), DF(), from);
#else
  HWY_ALIGN float lanes[kLanes] = {};
  std::copy(from, from + count, lanes);
  return hn::Load(DF(), lanes);
#endif
}

HWY_INLINE VF LoadFirst(const Float16* from, int64_t count) {
  if (count >= kLanes) return LoadToFloat(DF(), from);
  return LoadToFloatN(DF(), from, static_cast<size_t>(count));
}

HWY_INLINE VU8 LoadFirst(const uint8_t* from, int64_t count) {
  if (count >= kVectorBytes) return hn::LoadU(DU8(), from);
  HWY_ALIGN uint8_t bytes[kVectorBytes] = {};
  std::memcpy(bytes, from, static_cast<size_t>(count));
  return hn::Load(DU8(), bytes);
}

// For which lanes of a vector of products which of kLanes blocks in turn has the scale.
template <int kBits>
struct ScaleLanes {
  static constexpr int64_t kVectors = kBits == 4 ? 4 : 8;  // of codes in kLanes blocks
  using Indices = decltype(hn::SetTableIndices(DF(), static_cast<const int32_t*>(nullptr)));

  Indices at[kVectors];
  Indices shared;  // where blocks of W are longer than those of x

  explicit HWY_INLINE ScaleLanes(int shift) {
    HWY_ALIGN int32_t lanes[kLanes];
    for (int64_t v = 0; v < kVectors; ++v) {
      for (int64_t i = 0; i < kLanes; ++i) {
        lanes[i] = static_cast<int32_t>((v * kLanes + i) / kVectors);
      }
      at[v] = hn::SetTableIndices(DF(), lanes);
    }
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = static_cast<int32_t>(i >> shift);
    shared = hn::SetTableIndices(DF(), lanes);
  }
};

template <int kCols>
struct WeightRows {
  const uint8_t* codes[kCols];
  const float* scales[kCols];
  const Float16* half_scales[kCols];  // null: there are none
  const float* zeros[kCols];          // scale * zero point; null where all are the centre
};

// One number of each of kLanes blocks of x, from those of W's blocks.
template <int kBits, typename T>
HWY_INLINE VF PerBlock(const T* row, const WeightShape& w, int64_t block,
                       const ScaleLanes<kBits>& lanes) {
  const int64_t first = block >> w.shift;
  const VF v = LoadFirst(row + first, w.blocks - first);
  return w.shift == 0 ? v : hn::TableLookupLanes(v, lanes.shared);
}

// The scales of kLanes blocks of row c. Asks for those that are read with the codes kAhead.
template <int kBits, int kCols>
HWY_INLINE VF ScalesOf(const WeightRows<kCols>& from, int c, const WeightShape& w, int64_t block,
                       const ScaleLanes<kBits>& lanes) {
  const int64_t ahead = (block >> w.shift) + (kAhead / (kInt8Block * kBits / 8) >> w.shift);
  if (from.half_scales[c] != nullptr) {
    hwy::Prefetch(from.half_scales[c] + ahead);
    return PerBlock<kBits>(from.half_scales[c], w, block, lanes);
  }
  hwy::Prefetch(from.scales[c] + ahead);
  return PerBlock<kBits>(from.scales[c], w, block, lanes);
}

// totals += the products of kRows rows' integers and the codes that load(c) gives, those from byte
// `at` of the rows' first block on.
template <int kBits, int kCols, int kRows, class Load>
HWY_INLINE void AddVector(const int8_t* const (&rows)[kRows], int64_t at, const Load& load,
                          const VF (&scales)[kCols][kRows],
                          const typename ScaleLanes<kBits>::Indices& lanes,
                          VF (&totals)[kCols][kRows]) {
  const int64_t place = PlaceInX<kBits>(at);
  V8 low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) {
    low[r] = hn::LoadU(D8(), rows[r] + place);
    if constexpr (kBits == 4) high[r] = hn::LoadU(D8(), rows[r] + place + 64);
  }
  for (int c = 0; c < kCols; ++c) {
    const VU8 codes = load(c);
    for (int r = 0; r < kRows; ++r) {
      V32 sums = hn::Zero(D32());
      if constexpr (kBits == 4) {
        sums = AddQuads<4>(sums, LowCodes(codes), low[r]);
        sums = AddQuads<4>(sums, HighCodes(codes), high[r]);
      } else {
        sums = AddQuads<8>(sums, codes, low[r]);
      }
      totals[c][r] = hn::MulAdd(hn::ConvertTo(DF(), sums),
                                hn::TableLookupLanes(scales[c][r], lanes), totals[c][r]);
    }
  }
}

// y[r, c] of rows [first, first + kRows) of x and kCols rows of W.
template <int kBits, int kCols, int kRows>
HWY_INLINE void StreamTile(const Int8Rows& x, int64_t first, const WeightShape& w,
                           const WeightRows<kCols>& from, const ScaleLanes<kBits>& lanes,
                           const OutputView& y) {
  VF totals[kCols][kRows];
  for (auto& column : totals) {
    for (auto& total : column) total = hn::Zero(DF());
  }
  constexpr int64_t kVectors = ScaleLanes<kBits>::kVectors;
  constexpr int64_t kBlockBytes = kInt8Block * kBits / 8;
  for (int64_t b = 0; b < w.x_blocks; b += kLanes) {
    VF scales[kCols][kRows];
    for (int c = 0; c < kCols; ++c) {
      const VF own = ScalesOf<kBits>(from, c, w, b, lanes);
      const VF zeros = from.zeros[c] == nullptr ? hn::Mul(own, hn::Set(DF(), w.centre))
                                                : PerBlock<kBits>(from.zeros[c], w, b, lanes);
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = x.At(first + r, b);
        scales[c][r] = hn::Mul(own, hn::LoadU(DF(), x.units + at));
        totals[c][r] = hn::NegMulAdd(zeros, hn::LoadU(DF(), x.unit_sums + at), totals[c][r]);
      }
    }
    const int8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = x.codes + x.At(first + r, b) * kInt8Block;
    const int64_t begin = b * kBlockBytes;
    if (b + kLanes <= w.x_blocks) {
      for (int64_t v = 0; v < kVectors; ++v) {
        const auto load = [&](int c) HWY_ATTR {
          const uint8_t* codes = from.codes[c] + begin + v * kVectorBytes;
          hwy::Prefetch(codes + kAhead);
          return hn::LoadU(DU8(), codes);
        };
        AddVector<kBits>(rows, v * kVectorBytes, load, scales, lanes.at[v], totals);
      }
      continue;
    }
    const int64_t rest = w.row_bytes - begin;
    for (int64_t v = 0; v * kVectorBytes < rest; ++v) {
      const int64_t at = v * kVectorBytes;
      const auto load = [&](int c) HWY_ATTR {
        const uint8_t* codes = from.codes[c] + begin + at;
        hwy::Prefetch(codes + kAhead);
        return LoadFirst(codes, rest - at);
      };
      AddVector<kBits>(rows, at, load, scales, lanes.at[v], totals);
    }
  }
  for (int c = 0; c < kCols; ++c) {
    for (int r = 0; r < kRows; ++r) {
      y.data[r * y.stride + c] = hn::GetLane(hn::SumOfLanes(DF(), totals[c][r]));
    }
  }
}

// Products of the scales and zero points of row n; null where there are no zero points.
HWY_INLINE const float* ZerosOf(const NBitsWeight& w, int64_t n, float* memory) {
  if (w.zeros == nullptr && w.zero_codes == nullptr) return nullptr;
  const float* scales = w.scales + n * w.blocks();
  for (int64_t b = 0; b < w.blocks(); ++b) memory[b] = scales[b] * w.Zero(n, b);
  return memory;
}

template <int kBits>
struct Stream {
  const Int8Rows& x;
  const NBitsWeight& w;
  const WeightShape shape;
  const ScaleLanes<kBits> lanes;
  std::vector<float>& memory;

  // Rows [n, n + kCols) of W by the part's rows of x, y at the first of both.
  template <int kCols, int kRows>
  HWY_INLINE void Tile(int64_t first, int64_t n, const OutputView& y) const {
    WeightRows<kCols> from;
    for (int c = 0; c < kCols; ++c) {
      from.codes[c] = w.codes + (n + c) * w.row_bytes;
      from.scales[c] = w.scales + (n + c) * shape.blocks;
      from.half_scales[c] =
          w.half_scales == nullptr ? nullptr : w.half_scales + (n + c) * shape.blocks;
      from.zeros[c] = ZerosOf(w, n + c, memory.data() + c * shape.blocks);
    }
    StreamTile<kBits, kCols, kRows>(x, first, shape, from, lanes, y);
  }

  // All of the part's rows of W by kRows rows of x: these few stay in the first-level cache, and
  // several rows of W share what is read of them.
  template <int kRows>
  HWY_INLINE void Group(int64_t first, const Int8Part& part, const OutputView& y) const {
    // One row of x leaves time for reading W front to back, as prefetching likes it.
    constexpr int kSums = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
    constexpr int kCols = kRows == 1 ? 1 : kSums / kRows;
    const auto at = [&](int64_t n) { return OutputView{y.data + (n - part.n_begin), y.stride}; };
    int64_t n = part.n_begin;
    for (; n + kCols <= part.n_end; n += kCols) Tile<kCols, kRows>(first, n, at(n));
    for (; n < part.n_end; ++n) Tile<1, kRows>(first, n, at(n));
  }

  HWY_INLINE void Run(const Int8Part& part, const OutputView& y) const {
    int64_t r = part.row_begin;
    const auto at = [&] { return OutputView{y.data + (r - part.row_begin) * y.stride, y.stride}; };
    for (; r + 4 <= part.row_end; r += 4) Group<4>(r, part, at());
    for (; r + 2 <= part.row_end; r += 2) Group<2>(r, part, at());
    if (r < part.row_end) Group<1>(r, part, at());
  }
};

void StreamAny(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
               std::vector<float>& memory, const OutputView& y) {
  const WeightShape shape = ShapeOf(w);
  memory.resize(static_cast<size_t>(4 * shape.blocks));
  if (w.bits == 4) {
    Stream<4>{x, w, shape, ScaleLanes<4>(shape.shift), memory}.Run(part, y);
  } else {
    Stream<8>{x, w, shape, ScaleLanes<8>(shape.shift), memory}.Run(part, y);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(StreamAny);

void StreamInt8(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                std::vector<float>& zeros, const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(StreamAny)(x, w, part, zeros, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
