// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_int8_amx.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/amx_tiles.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

#define PF_AMX_INT8 __attribute__((target("amx-tile,amx-int8,avx512f")))

constexpr int64_t kRows = 16, kLanes = 16;  // of a tile of sums
constexpr int64_t kAtOnce = 4;              // blocks whose sums wait in tiles for each other
constexpr int64_t kQuads = kInt8Block / 4;
constexpr int64_t kColumns = Int8Tile::kColumns;
constexpr int64_t kChunk = Int8Rows::kChunk;
constexpr int64_t kXStride = kChunk * kInt8Block;  // bytes from a row of x to the next
constexpr int64_t kWStride = kColumns * 4;  // from four codes of all columns to the next four

// Tiles 0 to 3 are sums, 4 and 5 a block of 16 rows of x, 6 and 7 that of 16 rows of W.
PF_AMX_INT8 void BeginTiles() {
  amx::TileConfig config;
  for (int t = 0; t < 6; ++t) config.SetRows(t, kRows);
  for (int t = 4; t < 6; ++t) config.row_bytes[t] = kInt8Block;
  for (int t = 6; t < 8; ++t) config.SetRows(t, kQuads);
  amx::LoadConfig(config);
}

// ---- W in tiles ----

// 16 rows of W, of which the last may be one row several times.
struct WeightLanes {
  const NBitsWeight& w;
  int64_t rows[kLanes];
  __m512i byte_offsets, scale_offsets;  // from the first of all rows of W, in 32-bit numbers
};

PF_AMX_INT8 inline WeightLanes LanesFrom(const NBitsWeight& w, int64_t first, int64_t count) {
  WeightLanes lanes{w, {}, {}, {}};
  alignas(64) int32_t bytes[kLanes], scales[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    lanes.rows[i] = first + std::min(i, count - 1);
    bytes[i] = static_cast<int32_t>((lanes.rows[i] - first) * w.row_bytes);
    scales[i] = static_cast<int32_t>((lanes.rows[i] - first) * w.blocks());
  }
  lanes.byte_offsets = _mm512_load_si512(bytes);
  lanes.scale_offsets = _mm512_load_si512(scales);
  return lanes;
}

// Moves the upper half of each group of bits up by `shift`: what of it is in `mask`.
PF_AMX_INT8 inline __m512i Spread(__m512i v, unsigned shift, int32_t mask) {
  return _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi32(v, shift)), _mm512_set1_epi32(mask));
}

// The four nibbles of the low halves, a byte each, less 8.
PF_AMX_INT8 inline __m512i FourCodes(__m512i halves) {
  const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0x80808080));
  const __m512i codes = Spread(Spread(halves, 8, 0x00FF00FF), 4, 0x0F0F0F0F);
  // No byte borrows from the next: its top bit is set meanwhile.
  const __m512i less = _mm512_sub_epi32(_mm512_or_si512(codes, top), _mm512_set1_epi32(0x08080808));
  return _mm512_xor_si512(less, top);
}

// Block b of the lanes' rows to to[q * kColumns + lane].
PF_AMX_INT8 inline void LayOutCodes(const WeightLanes& lanes, int64_t b, uint32_t* to) {
  const int64_t block_bytes = kInt8Block * lanes.w.bits / 8;
  const uint8_t* from = lanes.w.codes + lanes.rows[0] * lanes.w.row_bytes + b * block_bytes;
  for (int64_t word = 0; word < block_bytes / 4; ++word) {
    const __m512i v = _mm512_i32gather_epi32(lanes.byte_offsets, from + 4 * word, 1);
    if (lanes.w.bits == 8) {
      const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(0x80808080));
      _mm512_storeu_si512(to + word * kColumns, _mm512_xor_si512(v, top));
      continue;
    }
    const __m512i low = _mm512_and_si512(v, _mm512_set1_epi32(0xFFFF));
    _mm512_storeu_si512(to + 2 * word * kColumns, FourCodes(low));
    _mm512_storeu_si512(to + (2 * word + 1) * kColumns, FourCodes(_mm512_srli_epi32(v, 16)));
  }
}

// True if what codes count from is not the centre everywhere.
bool HasZeros(const NBitsWeight& w) { return w.zeros != nullptr || w.zero_codes != nullptr; }

PF_AMX_INT8 inline void LayOutScales(const WeightLanes& lanes, int64_t b, float* scales,
                                     float* zeros) {
  const NBitsWeight& w = lanes.w;
  const int64_t of_w = b * kInt8Block / w.block;
  const __m512 v = _mm512_i32gather_ps(lanes.scale_offsets,
                                       w.scales + lanes.rows[0] * w.blocks() + of_w, sizeof(float));
  _mm512_storeu_ps(scales, v);
  if (!HasZeros(w)) return;
  const float centre = w.bits == 4 ? 8.0f : 128.0f;
  for (int64_t i = 0; i < kLanes; ++i) {
    zeros[i] = scales[i] * (w.Zero(lanes.rows[i], of_w) - centre);
  }
}

// Blocks [begin, end) of the part's rows of W. What comes behind them has scales of 0: x is 0 there.
PF_AMX_INT8 void LayOut(const NBitsWeight& w, const Int8Part& part, int64_t begin, int64_t end,
                        Int8Tile& tile) {
  for (int64_t c = 0; c < part.columns(); c += kLanes) {
    const WeightLanes lanes = LanesFrom(w, part.n_begin + c, std::min(kLanes, part.columns() - c));
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = (b - begin) * kColumns + c;
      LayOutCodes(lanes, b, tile.words.data() + (b - begin) * kQuads * kColumns + c);
      LayOutScales(lanes, b, tile.scales.data() + at, tile.zeros.data() + at);
    }
  }
  std::fill(tile.scales.begin() + (end - begin) * kColumns, tile.scales.end(), 0.0f);
  std::fill(tile.zeros.begin() + (end - begin) * kColumns, tile.zeros.end(), 0.0f);
}

// ---- products ----

// 16 rows of x in a chunk of blocks.
struct XRows {
  const int8_t* codes;
  const float* units;  // row r's at [r * kChunk], as those of unit_sums
  const float* unit_sums;
};

// Rows where fewer than 16 are left: the others are 0.
struct PaddedRows {
  alignas(64) int8_t codes[kRows * kXStride] = {};
  float units[kRows * kChunk] = {};
  float unit_sums[kRows * kChunk] = {};

  XRows Copy(const XRows& from, int64_t rows) {
    std::memcpy(codes, from.codes, static_cast<size_t>(rows * kXStride));
    std::copy_n(from.units, rows * kChunk, units);
    std::copy_n(from.unit_sums, rows * kChunk, unit_sums);
    return {codes, units, unit_sums};
  }
};

struct alignas(64) Sums {
  int32_t blocks[kAtOnce][kRows][kLanes];
};

PF_AMX_INT8 inline void MultiplyBlocks(const int8_t* x, const uint32_t* words, Sums& sums) {
  constexpr int64_t kNext = kQuads * kColumns;
  _tile_zero(0);
  _tile_loadd(4, x, kXStride);
  _tile_loadd(6, words, kWStride);
  _tile_dpbssd(0, 4, 6);
  _tile_zero(1);
  _tile_loadd(5, x + kInt8Block, kXStride);
  _tile_loadd(7, words + kNext, kWStride);
  _tile_dpbssd(1, 5, 7);
  _tile_zero(2);
  _tile_loadd(4, x + 2 * kInt8Block, kXStride);
  _tile_loadd(6, words + 2 * kNext, kWStride);
  _tile_dpbssd(2, 4, 6);
  _tile_zero(3);
  _tile_loadd(5, x + 3 * kInt8Block, kXStride);
  _tile_loadd(7, words + 3 * kNext, kWStride);
  _tile_dpbssd(3, 5, 7);
  _tile_stored(0, sums.blocks[0], 64);
  _tile_stored(1, sums.blocks[1], 64);
  _tile_stored(2, sums.blocks[2], 64);
  _tile_stored(3, sums.blocks[3], 64);
}

// What a call has for all of its 16 x 16 sums.
struct ChunkCall {
  const Int8Tile* tile;
  int64_t blocks;  // a multiple of kAtOnce
  bool has_zeros;
  bool adds;  // to y, which has the blocks before these
};

// `rows` rows of y, from `column` on.
template <bool kHasZeros>
PF_AMX_INT8 void MultiplyCorner(const ChunkCall& call, const XRows& x, int64_t column,
                                const Int8Part& to, const OutputView& y) {
  const Int8Tile& tile = *call.tile;
  __m512 totals[kRows];
  for (auto& total : totals) total = _mm512_setzero_ps();
  Sums sums;
  for (int64_t first = 0; first < call.blocks; first += kAtOnce) {
    MultiplyBlocks(x.codes + first * kInt8Block,
                   tile.words.data() + first * kQuads * kColumns + column, sums);
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const int64_t b = first + i;
      const __m512 scale = _mm512_loadu_ps(tile.scales.data() + b * kColumns + column);
      const __m512 zero =
          kHasZeros ? _mm512_loadu_ps(tile.zeros.data() + b * kColumns + column) : scale;
#pragma GCC unroll 16
      for (int64_t r = 0; r < kRows; ++r) {
        const __m512 unit = _mm512_set1_ps(x.units[r * kChunk + b]);
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums.blocks[i][r]));
        totals[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale, unit), totals[r]);
        if constexpr (kHasZeros) {
          const __m512 unit_sum = _mm512_set1_ps(x.unit_sums[r * kChunk + b]);
          totals[r] = _mm512_fnmadd_ps(zero, unit_sum, totals[r]);
        }
      }
    }
  }
  const auto mask = static_cast<__mmask16>((1u << std::min(kLanes, to.columns())) - 1);
  for (int64_t r = 0; r < to.rows(); ++r) {
    float* out = y.data + r * y.stride;
    const __m512 before = call.adds ? _mm512_maskz_loadu_ps(mask, out) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(before, totals[r]));
  }
}

// All rows of the part by the columns of the tile: a chunk of 16 rows of x stays in L1 for these.
PF_AMX_INT8 void MultiplyChunk(const ChunkCall& call, const Int8Rows& x, int64_t b_begin,
                               const Int8Part& part, const OutputView& y) {
  PaddedRows padded;
  for (int64_t r = part.row_begin; r < part.row_end; r += kRows) {
    const int64_t at = x.At(r, b_begin);
    const int64_t rows = std::min(kRows, part.row_end - r);
    XRows from{x.codes + at * kInt8Block, x.units + at, x.unit_sums + at};
    if (rows < kRows) from = padded.Copy(from, rows);
    for (int64_t c = 0; c < part.columns(); c += kLanes) {
      const Int8Part to{r, r + rows, part.n_begin + c, part.n_end};
      const OutputView corner{y.data + (r - part.row_begin) * y.stride + c, y.stride};
      (call.has_zeros ? MultiplyCorner<true> : MultiplyCorner<false>)(call, from, c, to, corner);
    }
  }
}

}  // namespace

PF_AMX_INT8 void MultiplyInt8TileAmx(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                                     Int8Tile& tile, const OutputView& y) {
  const int64_t blocks = w.blocks() * w.block / kInt8Block;
  BeginTiles();
  for (int64_t b = 0; b < blocks; b += Int8Tile::kBlocks) {
    const int64_t end = std::min(b + Int8Tile::kBlocks, blocks);
    LayOut(w, part, b, end, tile);
    const int64_t padded = (end - b + kAtOnce - 1) / kAtOnce * kAtOnce;
    MultiplyChunk({&tile, padded, HasZeros(w), b > 0}, x, b, part, y);
  }
  amx::ReleaseTiles();
}

#else

// Not called: HasAmxInt8() is false.
void MultiplyInt8TileAmx(const Int8Rows&, const NBitsWeight&, const Int8Part&, Int8Tile&,
                         const OutputView&) {}

#endif

}  // namespace pagefuse
