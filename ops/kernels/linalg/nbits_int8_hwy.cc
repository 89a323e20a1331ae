// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // VNNI
// A few rows: W goes by once, front to back.
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/ask_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8-inl.h"
#include "pagefuse/ops/kernels/linalg/transposed_f32-inl.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

// Codes in the low and in the high half of each byte.
HWY_INLINE VU8 LowCodes(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 0x0F)); }
HWY_INLINE VU8 HighCodes(VU8 bytes) {
  const hn::Repartition<uint16_t, DF> d16;
  return LowCodes(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

HWY_INLINE VU8 LoadFirst(const uint8_t* from, int64_t count) {
  if (count >= kVectorBytes) return hn::LoadU(DU8(), from);
  HWY_ALIGN uint8_t bytes[kVectorBytes] = {};
  std::memcpy(bytes, from, static_cast<size_t>(count));
  return hn::Load(DU8(), bytes);
}

constexpr int64_t kCols = kLanes;  // rows of W at a time: a lane of a sum each
constexpr int64_t kGroups = kCols / 4;
constexpr int64_t kChunk = Int8Rows::kChunk;

struct WeightRows {
  const uint8_t* codes[kCols];
  const float* scales[kCols];
  const Float16* half_scales[kCols];  // null: there are none
};

// Numbers of the rows by the blocks of a chunk: [block][row].
struct ChunkFactors {
  HWY_ALIGN float at[kChunk * kCols];

  HWY_INLINE VF Of(int64_t block) const { return hn::Load(DF(), at + block * kCols); }
};

// What the rows have for x's blocks [begin, begin + count) of a chunk, from what they have for their
// own blocks, row(c)[i].
template <class Row>
HWY_INLINE void FillFactors(const Row& row, const WeightShape& w, int64_t begin, int64_t count,
                            ChunkFactors& to) {
  int64_t b = 0;
  if (w.shift == 0) {
    for (; b + 4 <= count; b += 4) {
      VF rows[4];
      const auto load = [&](auto d4, int64_t c)
                            HWY_ATTR { return LoadToFloat(d4, row(c) + begin + b); };
      for (int64_t i = 0; i < 4; ++i) rows[i] = LoadFoursOf(DF(), load, i);
      TransposePieces(DF(), rows);
      for (int64_t i = 0; i < 4; ++i) hn::Store(rows[i], DF(), to.at + (b + i) * kCols);
    }
  }
  for (; b < count; ++b) {
    for (int64_t c = 0; c < kCols; ++c) {
      to.at[b * kCols + c] = static_cast<float>(row(c)[(begin + b) >> w.shift]);
    }
  }
}

// The scales of a chunk. Asks for those of the same chunk of the rows of W that follow.
HWY_INLINE void FillScales(const WeightRows& from, const WeightShape& w, int64_t begin,
                           int64_t count, ChunkFactors& to) {
  const int64_t ahead = (begin >> w.shift) + kCols * w.blocks;
  if (from.half_scales[0] != nullptr) {
    for (int64_t c = 0; c < kCols; ++c) hwy::Prefetch(from.half_scales[c] + ahead);
    FillFactors([&](int64_t c) { return from.half_scales[c]; }, w, begin, count, to);
  } else {
    for (int64_t c = 0; c < kCols; ++c) hwy::Prefetch(from.scales[c] + ahead);
    FillFactors([&](int64_t c) { return from.scales[c]; }, w, begin, count, to);
  }
}

// A step takes whole blocks and whole vectors of codes.
template <int kBits>
struct Step {
  static constexpr int64_t kBlockBytes = kInt8Block * kBits / 8;
  static constexpr int64_t kBytes = HWY_MAX(kBlockBytes, kVectorBytes);
  static constexpr int64_t kVectors = kBytes / kVectorBytes;
  static constexpr int64_t kBlocks = kBytes / kBlockBytes;
};

// sums[g][r] of 128-bit pieces: lane c of a piece is what it has of row 4 * g + c of W by row r of x.
// load(c, at) gives the codes from byte `at` of a step.
template <int kBits, int kRows, class Load>
HWY_INLINE void StepSums(const int8_t* const (&rows)[kRows], int64_t begin, const Load& load,
                         V32 (&sums)[kGroups][kRows]) {
  for (int64_t g = 0; g < kGroups; ++g) {
    V32 each[4][kRows];
    for (auto& column : each) {
      for (auto& sum : column) sum = hn::Zero(D32());
    }
    for (int64_t v = 0; v < Step<kBits>::kVectors; ++v) {
      const int64_t at = begin + v * kVectorBytes;
      const int64_t place = PlaceInX<kBits>(at);
      for (int64_t c = 0; c < 4; ++c) {
        const VU8 bytes = load(4 * g + c, at);
        const auto low = Products<kBits>::Of(kBits == 4 ? LowCodes(bytes) : bytes);
        const auto high = Products<kBits>::Of(HighCodes(bytes));  // of 4 bits
        for (int r = 0; r < kRows; ++r) {
          const int8_t* x = rows[r] + place;
          each[c][r] = Products<kBits>::Add(each[c][r], low, hn::LoadU(D8(), x));
          if constexpr (kBits == 8) continue;
          each[c][r] = Products<kBits>::Add(each[c][r], high, hn::LoadU(D8(), x + 64));
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      using Fold = typename Products<kBits>::Fold;
      sums[g][r] = Products<kBits>::Finish(
          FoldPieces<Fold>(D32(), each[0][r], each[1][r], each[2][r], each[3][r]));
    }
  }
}

// Piece kPiece of 128 bits of each group's sums, one after the other: a lane for each row of W.
template <int kPiece, int kRows>
HWY_INLINE V32 PieceOf(const V32 (&sums)[kGroups][kRows], int r) {
  if constexpr (kGroups == 1) {
    return sums[0][r];
  } else if constexpr (kGroups == 2) {
    return kPiece == 0 ? hn::ConcatLowerLower(D32(), sums[1][r], sums[0][r])
                       : hn::ConcatUpperUpper(D32(), sums[1][r], sums[0][r]);
  } else {
    const hn::Full128<int32_t> piece;
    HWY_ALIGN int32_t all[kGroups * kLanes], picked[kLanes];
    for (int64_t g = 0; g < kGroups; ++g) {
      hn::Store(sums[g][r], D32(), all + g * kLanes);
      hn::Store(hn::Load(piece, all + g * kLanes + kPiece * 4), piece, picked + g * 4);
    }
    return hn::Load(D32(), picked);
  }
}

// The sums of block kBlock of a step: those of one piece, or of two.
template <int kBits, int kBlock, int kRows>
HWY_INLINE V32 BlockOf(const V32 (&sums)[kGroups][kRows], int r) {
  constexpr int kPieces = HWY_MAX(kLanes / 4 / Step<kBits>::kBlocks, 1);
  if constexpr (kPieces == 1) {
    return PieceOf<kBlock>(sums, r);
  } else {
    return hn::Add(PieceOf<2 * kBlock>(sums, r), PieceOf<2 * kBlock + 1>(sums, r));
  }
}

// What a chunk has of both sides, beside codes.
template <int kRows>
struct ChunkCall {
  const Int8Rows& x;
  int64_t at[kRows];  // of the rows' first block
  const ChunkFactors* scales;
  const ChunkFactors* zeros;  // null: codes are centred
};

// totals += block b of the chunk, whose integers give `sum`.
template <int kBits, int kRows>
HWY_INLINE void AddBlock(const ChunkCall<kRows>& call, int64_t b, int r, V32 sum,
                         VF (&totals)[kRows]) {
  const int64_t at = call.at[r] + b;
  VF whole = hn::ConvertTo(DF(), sum);
  if constexpr (!Products<kBits>::kCentred) {
    // Both are whole numbers below 2^24: their difference is exact.
    whole = hn::Sub(whole, hn::Set(DF(), call.x.centre_sums[at]));
  }
  const VF factor = hn::Mul(call.scales->Of(b), hn::Set(DF(), call.x.units[at]));
  totals[r] = hn::MulAdd(whole, factor, totals[r]);
  if (call.zeros == nullptr) return;
  totals[r] = hn::NegMulAdd(call.zeros->Of(b), hn::Set(DF(), call.x.unit_sums[at]), totals[r]);
}

// totals += the blocks of a step, from block b of the chunk on.
template <int kBits, int kRows, int kBlock = 0>
HWY_INLINE void AddStep(const ChunkCall<kRows>& call, int64_t b, const V32 (&sums)[kGroups][kRows],
                        VF (&totals)[kRows]) {
  for (int r = 0; r < kRows; ++r) {
    AddBlock<kBits>(call, b + kBlock, r, BlockOf<kBits, kBlock>(sums, r), totals);
  }
  if constexpr (kBlock + 1 < Step<kBits>::kBlocks) {
    AddStep<kBits, kRows, kBlock + 1>(call, b, sums, totals);
  }
}

template <int kBits>
struct Stream {
  const Int8Rows& x;
  const NBitsWeight& w;
  const WeightShape shape;
  float* zeros;  // [kCols][shape.blocks]: scales times what zero points are off the centre

  // Zero points of rows from n on; those behind the last are the last one's.
  HWY_INLINE void FillZeros(int64_t n, int64_t n_end) const {
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t row = std::min(n + c, n_end - 1);
      const float* scales = w.scales + row * shape.blocks;
      for (int64_t b = 0; b < shape.blocks; ++b) {
        zeros[c * shape.blocks + b] = scales[b] * (w.Zero(row, b) - Centre<kBits>());
      }
    }
  }

  HWY_INLINE WeightRows RowsFrom(int64_t n, int64_t n_end) const {
    WeightRows from;
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t row = std::min(n + c, n_end - 1);
      from.codes[c] = w.codes + row * w.row_bytes;
      from.scales[c] = w.scales + row * shape.blocks;
      from.half_scales[c] = w.half_scales == nullptr ? nullptr : w.half_scales + row * shape.blocks;
    }
    return from;
  }

  // Asks for what is read later than the step at byte `at` of the rows. Of long rows a little ahead in
  // each of them; of short ones as much of the next kCols as a step reads, front to back: so few lines
  // of many rows, at a time, take memory a third longer.
  HWY_INLINE void AskForCodes(const WeightRows& from, int64_t at) const {
    constexpr int64_t kLine = 64, kAhead = 1024;
    if (shape.row_bytes < 2 * kAhead) {
      const uint8_t* next = from.codes[0] + kCols * (w.row_bytes + at);
      for (int64_t i = 0; i < kCols * Step<kBits>::kBytes; i += kLine) AskAhead(next + i);
    } else if (at % kLine == 0) {
      const int64_t behind = at + kAhead < shape.row_bytes ? 0 : (kCols - 1) * w.row_bytes;
      for (int64_t c = 0; c < kCols; ++c) AskAhead(from.codes[c] + at + kAhead + behind);
    }
  }

  // Blocks [begin, begin + count) of a chunk.
  template <int kRows>
  HWY_INLINE void Chunk(int64_t first, const WeightRows& from, int64_t begin, int64_t count,
                        VF (&totals)[kRows]) const {
    ChunkFactors scales, zero_factors;
    FillScales(from, shape, begin, count, scales);
    ChunkCall<kRows> call{x, {}, &scales, nullptr};
    if (!IsCentred(w)) {
      FillFactors([&](int64_t c) { return zeros + c * shape.blocks; }, shape, begin, count,
                  zero_factors);
      call.zeros = &zero_factors;
    }
    const int8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      call.at[r] = x.At(first + r, begin);
      rows[r] = x.codes + call.at[r] * kInt8Block;
      totals[r] = hn::Zero(DF());
    }
    constexpr int64_t kBlocks = Step<kBits>::kBlocks;
    const int64_t bytes_before = begin * Step<kBits>::kBlockBytes;
    V32 sums[kGroups][kRows];
    int64_t b = 0;
    for (; b + kBlocks <= count; b += kBlocks) {
      const int64_t at_step = b * Step<kBits>::kBlockBytes;
      AskForCodes(from, bytes_before + at_step);
      const auto load = [&](int64_t c, int64_t at) HWY_ATTR {
        return hn::LoadU(DU8(), from.codes[c] + bytes_before + at);
      };
      StepSums<kBits>(rows, at_step, load, sums);
      AddStep<kBits>(call, b, sums, totals);
    }
    if (b == count) return;
    const auto load = [&](int64_t c, int64_t at) HWY_ATTR {
      const int64_t place = bytes_before + at;
      return LoadFirst(from.codes[c] + place, std::max<int64_t>(shape.row_bytes - place, 0));
    };
    // What is behind the last block is 0 times scales that are anything.
    for (int64_t i = count; i < b + kBlocks; ++i) {
      hn::Store(hn::Zero(DF()), DF(), scales.at + i * kCols);
      hn::Store(hn::Zero(DF()), DF(), zero_factors.at + i * kCols);
    }
    StepSums<kBits>(rows, b * Step<kBits>::kBlockBytes, load, sums);
    AddStep<kBits>(call, b, sums, totals);
  }

  // kCols rows of W from n on by kRows rows of x, y at the first of both.
  template <int kRows>
  HWY_INLINE void Tile(int64_t first, int64_t n, int64_t n_end, const OutputView& y) const {
    const WeightRows from = RowsFrom(n, n_end);
    VF all[kRows];
    for (auto& total : all) total = hn::Zero(DF());
    for (int64_t b = 0; b < shape.x_blocks; b += kChunk) {
      VF totals[kRows];
      Chunk(first, from, b, std::min(kChunk, shape.x_blocks - b), totals);
      for (int r = 0; r < kRows; ++r) all[r] = hn::Add(all[r], totals[r]);
    }
    for (int r = 0; r < kRows; ++r) {
      float* to = y.data + r * y.stride;
      if (n + kCols <= n_end) {
        hn::StoreU(all[r], DF(), to);
        continue;
      }
      HWY_ALIGN float rest[kCols];
      hn::Store(all[r], DF(), rest);
      std::copy_n(rest, n_end - n, to);
    }
  }

  // All of the part's rows of x by a few rows of W, which stay in the first-level cache.
  HWY_INLINE void Run(const Int8Part& part, const OutputView& y) const {
    constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
    for (int64_t n = part.n_begin; n < part.n_end; n += kCols) {
      if (!IsCentred(w)) FillZeros(n, part.n_end);
      int64_t r = part.row_begin;
      const auto at = [&] {
        return OutputView{y.data + (r - part.row_begin) * y.stride + (n - part.n_begin), y.stride};
      };
      for (; r + kMaxRows <= part.row_end; r += kMaxRows) Tile<kMaxRows>(r, n, part.n_end, at());
      if constexpr (kMaxRows == 4) {
        if (r + 2 <= part.row_end) {
          Tile<2>(r, n, part.n_end, at());
          r += 2;
        }
      }
      if (r < part.row_end) Tile<1>(r, n, part.n_end, at());
    }
  }
};

void StreamAny(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
               std::vector<float>& memory, const OutputView& y) {
  const WeightShape shape = ShapeOf(w);
  memory.resize(static_cast<size_t>(kCols * shape.blocks));
  if (w.bits == 4) {
    Stream<4>{x, w, shape, memory.data()}.Run(part, y);
  } else {
    Stream<8>{x, w, shape, memory.data()}.Run(part, y);
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
                std::vector<float>& memory, const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(StreamAny)(x, w, part, memory, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
