// SPDX-License-Identifier: Apache-2.0
// Index scores in tiles of bfloat16: 16 keys by 16 heads a tile of sums. The rectified, weighted
// sum over heads is taken from the tiles while the next ones are multiplied.
#include <algorithm>
#include <cstring>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/indexer/mqa_engine.h"
#include "pagefuse/ops/kernels/linalg/amx_tiles.h"
#include "pagefuse/ops/kernels/linalg/bf16_dots.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/numeric/e4m3_bf16.h"

namespace pagefuse::pagefuse_ops {

#if defined(__x86_64__)

namespace {

// Sums live in registers only where these are inlined.
#define PF_AMX_INLINE PF_AMX __attribute__((always_inline)) inline

using amx::kTileStride;
using amx::Stage;

// Tiles of sums that one step makes: heads by the 16 keys of a tile of A.
constexpr int64_t kStepTiles = 4;

// Tiles 0 to 3 hold sums, 4 keys, 5 to 7 heads; all are full.
amx::TileConfig FullTiles() {
  amx::TileConfig config;
  for (int t = 0; t < 8; ++t) config.SetRows(t, kTileRows);
  return config;
}

// A unit multiplies 16 keys by kTiles tiles of heads. Keys are rows of `depth` tile depths; the
// tiles of 16 heads lie one behind the other over the depth. Sums are in the stage after Store.
struct AmxUnit {
  template <int kTiles>
  PF_AMX_INLINE static void Multiply(const uint16_t* keys, const uint16_t* heads, int64_t depth,
                                     Stage*) {
    const int64_t stride = depth * kTileStride;
    const int64_t column = depth * kTileWords;
    amx::ZeroSums();
    for (int64_t k = 0; k < depth; ++k, keys += kTileDepth, heads += kTileWords) {
      _tile_loadd(4, keys, stride);
      _tile_loadd(5, heads, kTileStride);
      _tile_dpbf16ps(0, 4, 5);
      if constexpr (kTiles > 1) {
        _tile_loadd(6, heads + column, kTileStride);
        _tile_dpbf16ps(1, 4, 6);
      }
      if constexpr (kTiles > 2) {
        _tile_loadd(7, heads + 2 * column, kTileStride);
        _tile_dpbf16ps(2, 4, 7);
      }
      if constexpr (kTiles > 3) {
        _tile_loadd(5, heads + 3 * column, kTileStride);
        _tile_dpbf16ps(3, 4, 5);
      }
    }
  }
  // The stage keeps the sums before until then.
  static constexpr bool kStoresLate = true;
  PF_AMX_INLINE static void Store(Stage* stage) { amx::StoreSums(stage); }
  PF_AMX static void Begin() { amx::LoadConfig(FullTiles()); }
  PF_AMX static void End() { amx::ReleaseTiles(); }
};

struct DotUnit {
  template <int kTiles>
  PF_AVX512 static void Multiply(const uint16_t* keys, const uint16_t* heads, int64_t depth,
                                 Stage* stage) {
    alignas(64) uint16_t tile[kTileWords];
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t row = 0; row < kTileRows; ++row) {
        std::memcpy(tile + row * kTileDepth, keys + (row * depth + k) * kTileDepth,
                    kTileDepth * sizeof(uint16_t));
      }
      // Two tiles of heads at a time, with half of the keys: as many sums as registers hold.
      constexpr int kBlocks = kTiles % 2 == 0 ? 2 : 1;
      constexpr int kRows = kTileRows / kBlocks;
      for (int t = 0; t < kTiles; t += kBlocks) {
        for (int row = 0; row < kTileRows; row += kRows) {
          DotTiles<kRows, kBlocks>({.a = tile + row * kTileDepth,
                                    .b = heads + (t * depth + k) * kTileWords,
                                    .b_stride = depth * kTileWords,
                                    .k_tiles = 1,
                                    .accumulate = k > 0,
                                    .c = stage->tiles[t] + row * kTileColumns});
        }
      }
    }
  }
  static constexpr bool kStoresLate = false;
  static void Store(Stage*) {}
  static void Begin() {}
  static void End() {}
};

// sums[key] (+)= max(0, dot) * weight, lane by lane, over kTiles tiles of sums.
template <int kTiles, bool kAdd>
PF_AMX_INLINE void AddHeads(const Stage& stage, const float* weights, __m512* sums) {
  const __m512 zero = _mm512_setzero_ps();
  __m512 w[kTiles];
  for (int t = 0; t < kTiles; ++t) w[t] = _mm512_loadu_ps(weights + t * kTileColumns);
#pragma GCC unroll 16
  for (int key = 0; key < kTileRows; ++key) {
    __m512 sum = kAdd ? sums[key] : zero;
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      const __m512 dots = _mm512_load_ps(stage.tiles[t] + key * kTileColumns);
      sum = _mm512_fmadd_ps(_mm512_max_ps(dots, zero), w[t], sum);
    }
    sums[key] = sum;
  }
}

// Lane i of the result is the sum of the lanes of v[i]: halves are added while the vectors merge
// two by two, first within 128 bits, then across.
PF_AMX_INLINE __m512 SumsOfLanes(const __m512* v) {
  __m512 pairs[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    pairs[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  __m512 fours[4];  // in each 128 bits: parts of the sums of four vectors
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(pairs[2 * i]);
    const __m512d b = _mm512_castps_pd(pairs[2 * i + 1]);
    fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  constexpr int kEven = 0x88;  // 128-bit parts 0 and 2 of each
  constexpr int kOdd = 0xDD;
  const __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(fours[0], fours[1], kEven),
                                   _mm512_shuffle_f32x4(fours[0], fours[1], kOdd));
  const __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(fours[2], fours[3], kEven),
                                    _mm512_shuffle_f32x4(fours[2], fours[3], kOdd));
  return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, kEven),
                       _mm512_shuffle_f32x4(low, high, kOdd));
}

// One query against decoded keys. Compiled for AMX with either unit: the compiler emits its
// instructions for the intrinsics of AmxUnit alone.
template <class Unit>
class TileScores {
 public:
  struct Sizes {
    int64_t depth;       // tile depths of a key
    int64_t head_tiles;  // tiles of 16 heads
  };
  TileScores(const Sizes& sizes, const uint16_t* heads, const float* weights)
      : sizes_(sizes), heads_(heads), weights_(weights) {}

  PF_AMX void Run(const DecodedKeys& decoded, const KeyRange& range, KeyDecoding& next,
                  float* out) {
    const Piece piece = {static_cast<const uint16_t*>(decoded.keys), decoded.scales, range, out};
    switch (sizes_.head_tiles) {
      case 1:
        return RunInOneStep<1>(piece, next);
      case 2:
        return RunInOneStep<2>(piece, next);
      case 3:
        return RunInOneStep<3>(piece, next);
      case 4:
        return RunInOneStep<4>(piece, next);
      default:
        return RunInSteps(piece, next);
    }
  }

 private:
  struct Piece {
    const uint16_t* keys;
    const float* scales;
    KeyRange range;
    float* out;
  };

  const uint16_t* Keys(const Piece& piece, int64_t first) const {
    return piece.keys + first * sizes_.depth * kTileDepth;
  }
  static int64_t FirstTile(const Piece& piece) { return piece.range.begin / kTileRows * kTileRows; }

  // All heads at once. Where sums are stored late, the vector units work on the 16 keys before, and
  // on the next piece, while the products of these keys run.
  template <int kTiles>
  PF_AMX void RunInOneStep(const Piece& piece, KeyDecoding& next) {
    const int64_t begin = FirstTile(piece);
    for (int64_t first = begin; first < piece.range.end; first += kTileRows) {
      Unit::template Multiply<kTiles>(Keys(piece, first), heads_, sizes_.depth, &stage_);
      if (!Unit::kStoresLate) {
        Finish<kTiles>(piece, first);
      } else if (first > begin) {
        Finish<kTiles>(piece, first - kTileRows);
      }
      next.Step();
      Unit::Store(&stage_);
    }
    if (Unit::kStoresLate) {
      Finish<kTiles>(piece, (piece.range.end - 1) / kTileRows * kTileRows);
    }
  }

  template <int kTiles>
  PF_AMX_INLINE void Finish(const Piece& piece, int64_t first) const {
    __m512 sums[kTileRows];
    AddHeads<kTiles, false>(stage_, weights_, sums);
    Write(piece, first, sums);
  }

  // More heads than a step has: their sums meet in memory.
  PF_AMX void RunInSteps(const Piece& piece, KeyDecoding& next) {
    for (int64_t first = FirstTile(piece); first < piece.range.end; first += kTileRows) {
      __m512 sums[kTileRows];
      for (__m512& sum : sums) sum = _mm512_setzero_ps();
      for (int64_t tile = 0; tile < sizes_.head_tiles; tile += kStepTiles) {
        // Tiles of zero weights stand in for missing ones.
        Unit::template Multiply<kStepTiles>(
            Keys(piece, first), heads_ + tile * sizes_.depth * kTileWords, sizes_.depth, &stage_);
        Unit::Store(&stage_);
        AddHeads<kStepTiles, true>(stage_, weights_ + tile * kTileColumns, sums);
      }
      next.Step();
      Write(piece, first, sums);
    }
  }

  PF_AMX_INLINE static void Write(const Piece& piece, int64_t first, const __m512* sums) {
    const __m512 scales = _mm512_loadu_ps(piece.scales + first);
    const __m512 logits = _mm512_mul_ps(SumsOfLanes(sums), scales);
    const int64_t skip = std::max<int64_t>(piece.range.begin - first, 0);
    const int64_t end = std::min(piece.range.end - first, kTileRows);
    const uint32_t mask = ((1u << end) - 1) & ~((1u << skip) - 1);
    _mm512_mask_storeu_ps(piece.out + first, static_cast<__mmask16>(mask), logits);
  }

  Sizes sizes_;
  const uint16_t* heads_;
  const float* weights_;
  Stage stage_;
};

// A packed query is its tiles of heads, then weights, zero behind the heads.
template <class Unit>
class TileEngine : public MqaEngine {
 public:
  explicit TileEngine(const MqaLogitsProblem& problem)
      : MqaEngine(problem),
        depth_(PaddedBf16Row(problem.head_size) / kTileDepth),
        head_tiles_(TilesFor(problem.heads)) {}

  int64_t QueryBytes() const override {
    return HeadWords() * static_cast<int64_t>(sizeof(uint16_t)) + head_tiles_ * kTileStride;
  }
  int64_t KeyBytes() const override { return depth_ * kTileStride; }

  void PackQuery(int64_t row, void* packed) const override {
    const MqaLogitsProblem& p = problem();
    auto* tiles = static_cast<uint16_t*>(packed);
    std::vector<uint16_t> rows(kTileColumns * depth_ * kTileDepth);
    for (int64_t t = 0; t < head_tiles_; ++t) {
      const int64_t first = t * kTileColumns;
      const int64_t count = std::clamp<int64_t>(p.heads - first, 0, kTileColumns);
      if (count < kTileColumns) std::fill(rows.begin(), rows.end(), uint16_t{0});
      E4M3ToBf16InAnyOrder(
          {p.q + (row * p.heads + first) * p.head_size, count, p.head_size, p.head_size},
          rows.data());
      PackTiles(rows.data(), tiles + t * depth_ * kTileWords);
    }
    auto* weights = reinterpret_cast<float*>(tiles + HeadWords());
    std::fill_n(weights, head_tiles_ * kTileColumns, 0.0f);
    std::copy_n(p.weights + row * p.heads, p.heads, weights);
  }

  void DecodeRun(const KeyRun& run, const DecodedKeys& decoded) const override {
    auto* keys = static_cast<uint16_t*>(decoded.keys);
    E4M3ToBf16InAnyOrder({run.codes, run.count, problem().head_size, run.stride},
                         keys + run.first * depth_ * kTileDepth);
  }

  void NegateKey(int64_t key, const DecodedKeys& decoded) const override {
    constexpr uint16_t kSign = 0x8000;
    uint16_t* words = static_cast<uint16_t*>(decoded.keys) + key * depth_ * kTileDepth;
    for (int64_t d = 0; d < depth_ * kTileDepth; ++d) words[d] ^= kSign;
  }

  void Score(const void* packed, const DecodedKeys& decoded, const KeyRange& range,
             KeyDecoding& next, float* out) const override {
    const auto* heads = static_cast<const uint16_t*>(packed);
    TileScores<Unit> scores({depth_, head_tiles_}, heads,
                            reinterpret_cast<const float*>(heads + HeadWords()));
    scores.Run(decoded, range, next, out);
  }

  void BeginScores() const override { Unit::Begin(); }
  void EndScores() const override { Unit::End(); }

 private:
  // At least one; past a step's, whole steps.
  static int64_t TilesFor(int64_t heads) {
    const int64_t tiles = std::max<int64_t>(1, (heads + kTileColumns - 1) / kTileColumns);
    return tiles <= kStepTiles ? tiles : (tiles + kStepTiles - 1) / kStepTiles * kStepTiles;
  }

  int64_t HeadWords() const { return head_tiles_ * depth_ * kTileWords; }

  // Row r of a tile of B holds words 2r and 2r + 1 of each of the 16 heads (VNNI order).
  PF_AVX512 void PackTiles(const uint16_t* rows, uint16_t* tiles) const {
    const int64_t row_pairs = depth_ * kTileRows;
    const __m512i heads =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(static_cast<int>(row_pairs)));
    for (int64_t pair = 0; pair < row_pairs; ++pair) {
      const __m512i words = _mm512_i32gather_epi32(heads, rows + 2 * pair, 4);
      _mm512_storeu_si512(tiles + pair * kTileDepth, words);
    }
  }

  int64_t depth_;
  int64_t head_tiles_;
};

}  // namespace

absl::Status MqaLogitsTilesSupported() {
  if (HasBf16Tiles()) return absl::OkStatus();
  return absl::FailedPreconditionError("this machine has neither AMX nor AVX512-BF16");
}

void MqaLogitsTiles(const MqaLogitsProblem& problem, Scratch* scratch) {
  if (HasAmxBf16()) return RunMqaEngine(problem, TileEngine<AmxUnit>(problem), scratch);
  RunMqaEngine(problem, TileEngine<DotUnit>(problem), scratch);
}

#else

absl::Status MqaLogitsTilesSupported() {
  return absl::FailedPreconditionError("AMX and AVX512-BF16 are parts of x86-64");
}

void MqaLogitsTiles(const MqaLogitsProblem&, Scratch*) { PF_CHECK(false); }

#endif

}  // namespace pagefuse::pagefuse_ops
