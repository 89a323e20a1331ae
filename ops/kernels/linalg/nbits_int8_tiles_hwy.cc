// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // VNNI
// Many rows: a part of W is laid out as tiles that stay in the first-level cache.
#include <algorithm>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_tiles_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kQuads = kInt8Block / 4;  // four bytes of a block that one lane adds up

// Rows [n, n + count) of W, blocks [b_begin, b_end) of 32 elements; count is padded with its last.
template <int kBits>
HWY_INLINE void LayOutTile(const NBitsWeight& w, int64_t n, int64_t count, int64_t b_begin,
                           int64_t b_end, Int8Tile& tile) {
  constexpr int64_t kColumns = Int8Tile::kColumns;
  constexpr int64_t kBlockBytes = kInt8Block * kBits / 8;
  const WeightShape shape = ShapeOf(w);
  const bool centred = IsCentred(w);
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
      if (!centred) zeros[c] = scales[c] * (w.Zero(row, scale) - Centre<kBits>());
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

// sums[r][v] = the products of block `b` of a tile (from its first one on) with rows of x, of which
// the first one's block b_begin is the start-th.
template <int kBits, int kRows, int kVectors>
HWY_INLINE void BlockSums(const TileCall& call, int64_t start, int64_t b, int64_t column,
                          V32 (&sums)[kRows][kVectors]) {
  constexpr int64_t kColumns = Int8Tile::kColumns;
  const uint32_t* words = call.tile->words.data() + b * kQuads * kColumns + column;
  const int8_t* codes_of_x =
      call.x->codes + start * kInt8Block + PlaceInX<kBits>(b * kInt8Block * kBits / 8);
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(D32());
  }
  for (int64_t q = 0; q < kQuads; ++q) {
    const int64_t four = kBits == 4 ? q / 4 * 64 + q % 4 * 4 : q * 4;
    typename Products<kBits>::Codes codes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = Products<kBits>::Of(hn::BitCast(
          DU8(), hn::LoadU(hn::RebindToUnsigned<D32>(), words + q * kColumns + v * kLanes)));
    }
    for (int r = 0; r < kRows; ++r) {
      int32_t word;
      std::memcpy(&word, codes_of_x + r * Int8Rows::kChunk * kInt8Block + four, sizeof(word));
      const V8 all = hn::BitCast(D8(), hn::Set(D32(), word));
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Products<kBits>::Add(sums[r][v], codes[v], all);
      }
    }
  }
  for (auto& row : sums) {
    for (auto& sum : row) sum = Products<kBits>::Finish(sum);
  }
}

// totals += the sums of block `b`, times both sides' scales.
template <int kBits, bool kCentred, int kRows, int kVectors>
HWY_INLINE void AddSums(const TileCall& call, int64_t start, int64_t b, int64_t column,
                        const V32 (&sums)[kRows][kVectors], VF (&totals)[kRows][kVectors]) {
  const int64_t at = b * Int8Tile::kColumns + column;
  for (int v = 0; v < kVectors; ++v) {
    const VF scale = hn::LoadU(DF(), call.tile->scales.data() + at + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const int64_t unit = start + r * Int8Rows::kChunk + b;
      const VF factor = hn::Mul(scale, hn::Set(DF(), call.x->units[unit]));
      VF whole = hn::ConvertTo(DF(), sums[r][v]);
      if constexpr (!Products<kBits>::kCentred) {
        // Both are whole numbers below 2^24: their difference is exact.
        whole = hn::Sub(whole, hn::Set(DF(), call.x->centre_sums[unit]));
      }
      totals[r][v] = hn::MulAdd(whole, factor, totals[r][v]);
      if constexpr (kCentred) continue;
      const VF zero = hn::LoadU(DF(), call.tile->zeros.data() + at + v * kLanes);
      totals[r][v] = hn::NegMulAdd(zero, hn::Set(DF(), call.x->unit_sums[unit]), totals[r][v]);
    }
  }
}

// Rows [first, first + kRows) of x by the vectors of columns from `column` on, to y.
template <int kBits, bool kCentred, int kRows, int kVectors>
HWY_INLINE void TileProducts(const TileCall& call, int64_t first, int64_t column,
                             const OutputView& y) {
  const int64_t start = call.x->At(first, call.b_begin);
  VF totals[kRows][kVectors];
  for (auto& row : totals) {
    for (auto& total : row) total = hn::Zero(DF());
  }
  for (int64_t b = 0; b < call.b_end - call.b_begin; ++b) {
    V32 sums[kRows][kVectors];
    BlockSums<kBits>(call, start, b, column, sums);
    AddSums<kBits, kCentred>(call, start, b, column, sums, totals);
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
template <int kBits, bool kCentred, int kRows, int kVectors>
HWY_INLINE void TileStep(const TileCall& call, int64_t first, int64_t column, int64_t count,
                         const OutputView& y) {
  constexpr int64_t kStep = kVectors * kLanes;
  if (count >= kStep) {
    return TileProducts<kBits, kCentred, kRows, kVectors>(call, first, column, y);
  }
  HWY_ALIGN float rest[kRows * kStep] = {};
  for (int64_t r = 0; call.adds && r < kRows; ++r) {
    std::copy_n(y.data + r * y.stride, count, rest + r * kStep);
  }
  TileProducts<kBits, kCentred, kRows, kVectors>(call, first, column, {rest, kStep});
  for (int64_t r = 0; r < kRows; ++r) std::copy_n(rest + r * kStep, count, y.data + r * y.stride);
}

// All rows of x by a few columns at a time: those stay in the first-level cache.
template <int kBits, bool kCentred>
HWY_INLINE void TilePart(const TileCall& call, const Int8Part& part, const OutputView& y) {
  constexpr int kVectors = 2;
  constexpr int kRows = 6;
  for (int64_t column = 0; column < part.columns(); column += kVectors * kLanes) {
    const int64_t count = part.columns() - column;
    const auto to = [&](int64_t r) {
      return OutputView{y.data + (r - part.row_begin) * y.stride + column, y.stride};
    };
    int64_t r = part.row_begin;
    for (; r + kRows <= part.row_end; r += kRows) {
      TileStep<kBits, kCentred, kRows, kVectors>(call, r, column, count, to(r));
    }
    for (; r + 2 <= part.row_end; r += 2) {
      TileStep<kBits, kCentred, 2, kVectors>(call, r, column, count, to(r));
    }
    if (r < part.row_end) TileStep<kBits, kCentred, 1, kVectors>(call, r, column, count, to(r));
  }
}

template <int kBits>
HWY_INLINE void MultiplyTiles(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                              Int8Tile& tile, const OutputView& y) {
  const int64_t blocks = ShapeOf(w).x_blocks;
  const bool centred = IsCentred(w);
  for (int64_t b = 0; b < blocks; b += Int8Tile::kBlocks) {
    const int64_t end = std::min(b + Int8Tile::kBlocks, blocks);
    LayOutTile<kBits>(w, part.n_begin, part.columns(), b, end, tile);
    (centred ? TilePart<kBits, true> : TilePart<kBits, false>)({&x, &tile, b, end, b > 0}, part, y);
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

HWY_EXPORT(TileAny);

void MultiplyInt8Tile(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part, Int8Tile& tile,
                      const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(TileAny)(x, w, part, tile, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
