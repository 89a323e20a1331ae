#define HWY_WANT_AVX3_DL  // VNNI
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using D32 = hn::RebindToSigned<DF>;
using D8 = hn::Repartition<int8_t, DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VF = hn::Vec<DF>;
using V32 = hn::Vec<D32>;
using V8 = hn::Vec<D8>;
using VU8 = hn::Vec<DU8>;

constexpr int64_t kLanes = hn::MaxLanes(DF());
constexpr int64_t kVectorBytes = 4 * kLanes;
constexpr int64_t kAhead = 4096;            // bytes of W that are asked for before they are read
constexpr int64_t kQuads = kInt8Block / 4;  // four bytes of a block that one lane adds up

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3_DL
// Sums of four products in each lane. The sums of two that come before must fit int16.
HWY_INLINE V32 SmallQuads(VU8 codes, V8 x) {
#if HWY_TARGET <= HWY_AVX3
  return V32{_mm512_madd_epi16(_mm512_maddubs_epi16(codes.raw, x.raw), _mm512_set1_epi16(1))};
#elif HWY_TARGET <= HWY_AVX2
  return V32{_mm256_madd_epi16(_mm256_maddubs_epi16(codes.raw, x.raw), _mm256_set1_epi16(1))};
#else
  return V32{_mm_madd_epi16(_mm_maddubs_epi16(codes.raw, x.raw), _mm_set1_epi16(1))};
#endif
}
#endif

// sums + the products of four codes and four integers, which lie in [-127, 127], in each lane.
template <int kBits>
HWY_INLINE V32 AddQuads(V32 sums, VU8 codes, V8 x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  // Highway asks the processor for AVX512-VNNI before it takes AVX3_DL, but (1.0.3) the compiler
  // for AVX-VNNI: no intrinsic.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(x.raw));
  return sums;
#elif HWY_ARCH_X86
  if constexpr (kBits == 4) return hn::Add(sums, SmallQuads(codes, x));
  // 127 * 127 * 2 and 128 * 127 * 2 are int16, 255 * 127 * 2 is not.
  const auto top = hn::Set(DU8(), 0x80);
  sums = hn::Add(sums, SmallQuads(hn::AndNot(top, codes), x));
  return hn::Add(sums, SmallQuads(hn::And(top, codes), x));
#else
  const hn::Repartition<int16_t, DF> d16;
  const auto c = hn::BitCast(hn::Repartition<uint16_t, DF>(), codes);
  const auto q = hn::BitCast(d16, x);
  auto other = hn::Zero(D32());
  const auto even = hn::And(hn::BitCast(d16, c), hn::Set(d16, 0xFF));
  sums = hn::ReorderWidenMulAccumulate(D32(), even, hn::ShiftRight<8>(hn::ShiftLeft<8>(q)), sums,
                                       other);
  sums = hn::ReorderWidenMulAccumulate(D32(), hn::BitCast(d16, hn::ShiftRight<8>(c)),
                                       hn::ShiftRight<8>(q), sums, other);
  return hn::RearrangeToOddPlusEven(sums, other);
#endif
}

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

// Where the integers of x lie for the codes from byte `at` of a chunk on (Int8Rows); those of the
// high halves are 64 bytes behind those of the low ones.
template <int kBits>
HWY_INLINE int64_t PlaceInX(int64_t at) {
  return kBits == 4 ? at + at / 64 * 64 : at;
}

// ---- rounding ----

// Rounds 32 numbers; returns their unit and sets *sum to that of the integers.
HWY_INLINE float RoundBlock(const float* x, int8_t* to, int32_t* sum) {
  const DF df;
  const D32 d32;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Rebind<int8_t, DF> d8;
  auto most = hn::Zero(df);
  auto all = hn::Zero(df);  // Max may drop a NaN
  for (int64_t i = 0; i < kInt8Block; i += kLanes) {
    const auto magnitude = hn::Abs(hn::LoadU(df, x + i));
    most = hn::Max(most, magnitude);
    all = hn::Add(all, hn::Mul(magnitude, hn::Set(df, 0x1p-5f)));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(df, most));
  const bool usual = std::isfinite(hn::GetLane(hn::SumOfLanes(df, all)));
  const float unit = largest / 127;
  // Units that are subnormal have no reciprocal.
  const float factor = usual && unit >= std::numeric_limits<float>::min() ? 127 / largest : 0;
  auto total = hn::Zero(d32);
  for (int64_t i = 0; i < kInt8Block; i += kLanes) {
    const auto v = hn::LoadU(df, x + i);
    const auto whole = hn::NearestInt(usual ? hn::Mul(v, hn::Set(df, factor)) : hn::Zero(df));
    total = hn::Add(total, whole);
    hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, whole)), d8, to + i);
  }
  *sum = hn::GetLane(hn::SumOfLanes(d32, total));
  return usual ? (factor > 0 ? unit : 0) : std::numeric_limits<float>::quiet_NaN();
}

// The even bytes of a block to to[0, 16), the odd ones to to[64, 80).
HWY_INLINE void SplitBlock(const int8_t* block, int8_t* to) {
  const hn::Full128<int16_t> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  for (int64_t i = 0; i < kInt8Block / 2; i += 8) {
    const auto pairs = hn::LoadU(d16, reinterpret_cast<const int16_t*>(block + 2 * i));
    const auto odd = hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(), pairs));
    auto* bytes = reinterpret_cast<uint8_t*>(to + i);
    hn::StoreU(hn::DemoteTo(d8, hn::And(pairs, hn::Set(d16, 0xFF))), d8, bytes);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(d16, odd)), d8, bytes + 64);
  }
}

void RoundRow(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to) {
  for (int64_t b = 0; b < to.blocks; ++b) {
    HWY_ALIGN int8_t block[kInt8Block] = {};
    HWY_ALIGN float rest[kInt8Block] = {};
    const int64_t begin = b * kInt8Block;
    const float* from = x + begin;
    if (begin + kInt8Block > k) {
      std::copy(x + std::min(begin, k), x + k, rest);
      from = rest;
    }
    int32_t sum = 0;
    const int64_t at = to.At(row, b);
    to.units[at] = begin < k ? RoundBlock(from, block, &sum) : 0;
    to.unit_sums[at] = to.units[at] * static_cast<float>(sum);
    if (bits == 8) {
      std::memcpy(to.codes + at * kInt8Block, block, sizeof(block));
      continue;
    }
    // The even elements of a run's four blocks, then the odd ones.
    SplitBlock(block, to.codes + at / 4 * 128 + at % 4 * 16);
  }
}

// ---- a few rows ----

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

// What a product has of W, beside its codes.
struct WeightShape {
  int64_t row_bytes;
  int64_t x_blocks;  // of 32 elements
  int64_t blocks;    // of scales
  int shift;         // x's blocks in one of W's, as a power of two
  float centre;      // the zero point of all; of other ones see the products with the scales
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

WeightShape ShapeOf(const NBitsWeight& w) {
  const int64_t x_in_w = w.block / kInt8Block;
  return {.row_bytes = w.blocks() * w.block * w.bits / 8,
          .x_blocks = w.blocks() * x_in_w,
          .blocks = w.blocks(),
          .shift = std::countr_zero(static_cast<uint64_t>(x_in_w)),
          .centre = w.bits == 4 ? 8.0f : 128.0f};
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

// ---- many rows ----

// Rows [n, n + count) of W, blocks [b_begin, b_end) of 32 elements; count is padded with its last.
template <int kBits>
HWY_INLINE void LayOutTile(const NBitsWeight& w, int64_t n, int64_t count, int64_t b_begin,
                           int64_t b_end, Int8Tile& tile) {
  constexpr int64_t kColumns = Int8Tile::kColumns;
  constexpr int64_t kBlockBytes = kInt8Block * kBits / 8;
  const WeightShape shape = ShapeOf(w);
  const bool centred = w.zeros == nullptr && w.zero_codes == nullptr;
  // Row after row within a block: what is read and written stays in the first-level cache.
  for (int64_t b = b_begin; b < b_end; ++b) {
    uint32_t* to = tile.words.data() + (b - b_begin) * kQuads * kColumns;
    float* scales = tile.scales.data() + (b - b_begin) * kColumns;
    float* zeros = tile.zeros.data() + (b - b_begin) * kColumns;
    for (int64_t c = 0; c < kColumns; ++c) {
      const int64_t row = n + std::min(c, count - 1);
      uint32_t words[kBlockBytes / 4];
      std::memcpy(words, w.codes + row * w.row_bytes + b * kBlockBytes, sizeof(words));
      for (int64_t q = 0; q < kQuads; ++q) {
        to[q * kColumns + c] =
            kBits == 4 ? (words[q % 4] >> (q / 4 * 4)) & 0x0F0F0F0F : words[q % 8];
      }
      const int64_t scale = b >> shape.shift;
      scales[c] = w.scales[row * shape.blocks + scale];
      zeros[c] = scales[c] * (centred ? shape.centre : w.Zero(row, scale));
    }
  }
}

// Blocks of x against a tile's.
struct TileCall {
  const Int8Rows* x;
  const Int8Tile* tile;
  int64_t b_begin, b_end;
  bool adds;  // to y, which has the blocks before these
};

// Rows [first, first + kRows) of x by the vectors of columns from `column` on, to y.
template <int kBits, int kRows, int kVectors>
HWY_INLINE void TileProducts(const TileCall& call, int64_t first, int64_t column,
                             const OutputView& y) {
  constexpr int64_t kColumns = Int8Tile::kColumns;
  const Int8Rows& x = *call.x;
  const int64_t start = x.At(first, call.b_begin);
  VF totals[kRows][kVectors];
  for (auto& row : totals) {
    for (auto& total : row) total = hn::Zero(DF());
  }
  for (int64_t b = call.b_begin; b < call.b_end; ++b) {
    const int64_t at = (b - call.b_begin) * kColumns + column;
    const uint32_t* words =
        call.tile->words.data() + (b - call.b_begin) * kQuads * kColumns + column;
    const int8_t* codes_of_x =
        x.codes + start * kInt8Block + PlaceInX<kBits>((b - call.b_begin) * kInt8Block * kBits / 8);
    V32 sums[kRows][kVectors];
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(D32());
    }
    for (int64_t q = 0; q < kQuads; ++q) {
      const int64_t four = kBits == 4 ? q / 4 * 64 + q % 4 * 4 : q * 4;
      VU8 codes[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        codes[v] = hn::BitCast(
            DU8(), hn::LoadU(hn::RebindToUnsigned<D32>(), words + q * kColumns + v * kLanes));
      }
      for (int r = 0; r < kRows; ++r) {
        int32_t word;
        std::memcpy(&word, codes_of_x + r * Int8Rows::kChunk * kInt8Block + four, sizeof(word));
        const V8 all = hn::BitCast(D8(), hn::Set(D32(), word));
        for (int v = 0; v < kVectors; ++v) sums[r][v] = AddQuads<kBits>(sums[r][v], codes[v], all);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const VF scale = hn::LoadU(DF(), call.tile->scales.data() + at + v * kLanes);
      const VF zero = hn::LoadU(DF(), call.tile->zeros.data() + at + v * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const int64_t unit = start + r * Int8Rows::kChunk + b - call.b_begin;
        const VF factor = hn::Mul(scale, hn::Set(DF(), x.units[unit]));
        totals[r][v] = hn::MulAdd(hn::ConvertTo(DF(), sums[r][v]), factor, totals[r][v]);
        totals[r][v] = hn::NegMulAdd(zero, hn::Set(DF(), x.unit_sums[unit]), totals[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = y.data + r * y.stride + v * kLanes;
      const VF before = call.adds ? hn::LoadU(DF(), to) : hn::Zero(DF());
      hn::StoreU(hn::Add(before, totals[r][v]), DF(), to);
    }
  }
}

// kRows rows by the kVectors vectors of columns from `column` on, of which `count` are of y.
template <int kBits, int kRows, int kVectors>
HWY_INLINE void TileStep(const TileCall& call, int64_t first, int64_t column, int64_t count,
                         const OutputView& y) {
  constexpr int64_t kStep = kVectors * kLanes;
  if (count >= kStep) {
    return TileProducts<kBits, kRows, kVectors>(call, first, column, y);
  }
  HWY_ALIGN float rest[kRows * kStep] = {};
  for (int64_t r = 0; call.adds && r < kRows; ++r) {
    std::copy_n(y.data + r * y.stride, count, rest + r * kStep);
  }
  TileProducts<kBits, kRows, kVectors>(call, first, column, {rest, kStep});
  for (int64_t r = 0; r < kRows; ++r) std::copy_n(rest + r * kStep, count, y.data + r * y.stride);
}

// All rows of x by a few columns at a time: those stay in the first-level cache.
template <int kBits>
HWY_INLINE void TilePart(const TileCall& call, const Int8Part& part, const OutputView& y) {
  constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? 2 : 1;
  constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 6 : 4;
  for (int64_t column = 0; column < part.columns(); column += kVectors * kLanes) {
    const int64_t count = part.columns() - column;
    const auto to = [&](int64_t r) {
      return OutputView{y.data + (r - part.row_begin) * y.stride + column, y.stride};
    };
    int64_t r = part.row_begin;
    for (; r + kRows <= part.row_end; r += kRows) {
      TileStep<kBits, kRows, kVectors>(call, r, column, count, to(r));
    }
    for (; r + 2 <= part.row_end; r += 2) {
      TileStep<kBits, 2, kVectors>(call, r, column, count, to(r));
    }
    if (r < part.row_end) TileStep<kBits, 1, kVectors>(call, r, column, count, to(r));
  }
}

template <int kBits>
HWY_INLINE void MultiplyTiles(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                              Int8Tile& tile, const OutputView& y) {
  const int64_t blocks = ShapeOf(w).x_blocks;
  for (int64_t b = 0; b < blocks; b += Int8Tile::kBlocks) {
    const int64_t end = std::min(b + Int8Tile::kBlocks, blocks);
    LayOutTile<kBits>(w, part.n_begin, part.columns(), b, end, tile);
    TilePart<kBits>({&x, &tile, b, end, b > 0}, part, y);
  }
}

void TileAny(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part, Int8Tile& tile,
             const OutputView& y) {
  (w.bits == 4 ? MultiplyTiles<4> : MultiplyTiles<8>)(x, w, part, tile, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(RoundRow);
HWY_EXPORT(StreamAny);
HWY_EXPORT(TileAny);

void RoundToInt8(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to) {
  HWY_DYNAMIC_DISPATCH(RoundRow)(x, k, bits, row, to);
}

void StreamInt8(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                std::vector<float>& zeros, const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(StreamAny)(x, w, part, zeros, y);
}

void MultiplyInt8Tile(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part, Int8Tile& tile,
                      const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(TileAny)(x, w, part, tile, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
