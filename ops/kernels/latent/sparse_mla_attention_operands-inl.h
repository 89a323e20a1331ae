// SPDX-License-Identifier: Apache-2.0
// How a task on tiles gets at cache rows: packed into tiles of keys and of values, which every unit
// for bfloat16 multiplies, or as rows where they lie. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_OPERANDS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_OPERANDS_INL_H_
#undef PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_OPERANDS_INL_H_
#else
#define PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_OPERANDS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_prefill-inl.h"
#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/kernels/formats/grouped_words-inl.h"
#include "pagefuse/ops/kernels/latent/latent_rows-inl.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_tiles.h"
#include "pagefuse/ops/kernels/linalg/bf16_rows.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four rows of 16-bit words into columns [column, column + 4) of B tiles: `words` a row, a multiple
// of 32. `rows` are row_words apart.
HWY_INLINE void PackFourPairs(const uint16_t* rows, int64_t words, int64_t column,
                              uint16_t* tiles) {
  const DF df;
  const hn::Repartition<uint16_t, DF> du16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t pairs = words / 2;
  constexpr int64_t kTilePairs = kTileDepth / 2;
  for (int64_t i = 0; i < pairs; i += lanes) {
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::BitCast(df, hn::LoadU(du16, rows + r * words + 2 * i));
    };
    auto* to = reinterpret_cast<float*>(tiles + i / kTilePairs * kTileWords);
    TransposeFour(load(0), load(1), load(2), load(3), kTileColumns,
                  to + i % kTilePairs * kTileColumns + column);
  }
}

// The same of Q tiles (linalg/bf16_rows.h).
HWY_INLINE void PackFourQuads(const uint16_t* rows, int64_t words, int64_t column,
                              uint16_t* tiles) {
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t k = 0; k < words; k += kQuad) {
      std::copy_n(rows + r * words + k, kQuad, tiles + k * kTileColumns + (column + r) * kQuad);
    }
  }
}

// Two rows of words: rows `row` and row + 1 of A tiles, and a row of B tiles with interleaved
// columns (linalg/bf16_rows.h).
struct RowPair {
  const uint16_t* even;
  const uint16_t* odd;
  int64_t row;       // of the A tiles, even
  uint16_t* keys;    // the first A tile
  uint16_t* values;  // the row in the first B tile
};
HWY_INLINE void InterleaveRows(const RowPair& pair, const SparseMlaTilesMemory& memory) {
  const hn::CappedTag<uint16_t, kTileDepth> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < memory.depth_tiles; ++t) {
    uint16_t* key = pair.keys + t * kTileWords + pair.row * kTileDepth;
    uint16_t* value = pair.values + 2 * t * kValueStep;
    for (int64_t i = 0; i < kTileDepth; i += step) {
      const auto even = hn::LoadU(d, pair.even + t * kTileDepth + i);
      const auto odd = hn::LoadU(d, pair.odd + t * kTileDepth + i);
      hn::Store(even, d, key + i);
      hn::Store(odd, d, key + kTileDepth + i);
      if (2 * t >= memory.value_tiles) continue;
      hn::Store(hn::InterleaveLower(d, even, odd), d, value + i);
      hn::Store(hn::InterleaveUpper(d, even, odd), d, value + kValueStep + i);
    }
  }
}

// What both have: rows as words, and those that will come. Both go through the rows of a task in
// order, kPartKeys after kPartKeys: Scores, then Values, between one Begin and one End.
class TaskRows {
 public:
  TaskRows(const SparseMlaTask& task, const SparseMlaTilesMemory& at)
      : task_(task), p_(*task.problem), at_(at) {}

 protected:
  int64_t count() const { return static_cast<int64_t>(task_.rows.size()); }

  // A row as bfloat16: where it lies, or decoded to `to`.
  template <class Codec>
  HWY_INLINE const uint16_t* Words(const Codec& codec, int64_t row, uint16_t* to) const {
    const RowAddress address = task_.rows[static_cast<size_t>(row)];
    if constexpr (std::is_same_v<typename Codec::Element, Bfloat16>) {
      if (p_.head_size == at_.row_words()) return reinterpret_cast<const uint16_t*>(address.data);
    }
    DecodeRowWords(codec, address, static_cast<size_t>(p_.head_size),
                   static_cast<size_t>(at_.row_words()), to);
    return to;
  }

  // `step` rows from `first`, or as many as there are. Asks for their scales at once.
  HWY_INLINE ComingRows Coming(int64_t first, int64_t step) {
    const int64_t end = std::min(first + step, count());
    int64_t coming = 0;
    for (int64_t row = first; row < end; ++row) {
      const RowAddress& address = task_.rows[static_cast<size_t>(row)];
      if (address.scale != nullptr) __builtin_prefetch(address.scale);
      coming_[coming++] = address.data;
    }
    constexpr int64_t kLine = 64;
    return {coming_, coming, (p_.cache().data_strides.row + kLine - 1) / kLine};
  }

  HWY_INLINE void Ask(const ComingRows& rows) const {
    for (int64_t line = 0; line < rows.lines; ++line) rows.Ask(line);
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaTilesMemory& at_;

 private:
  const uint8_t* coming_[2 * kTileStepKeys];
};

class PackedRows : public TaskRows {
 public:
  using TaskRows::TaskRows;

  HWY_INLINE void PackFourColumns(const uint16_t* rows, int64_t column, uint16_t* tiles) const {
    PackFourPairs(rows, at_.row_words(), column, tiles);
  }

  HWY_INLINE void AskForFirst() { Ask(Coming(0, step_keys())); }

  HWY_INLINE void Begin() {
    std::fill_n(zeros(), at_.row_words(), uint16_t{0});
    BeginTileProducts();
  }
  HWY_INLINE void End() { EndTileProducts(); }

  // Scores of rows [tile, tile + count) of the task.
  HWY_INLINE void Scores(int64_t tile, int64_t count) {
    for (int64_t step = 0; step < count; step += step_keys()) {
      const int64_t end = std::min(step + step_keys(), count);
      Pack(tile + end);
      Step(step, end);
    }
  }

  // Adds the values of the same rows under their weights, or sets them.
  HWY_INLINE void Values(bool accumulate, int64_t k_tiles) {
    TileBlock block{.k_tiles = k_tiles, .accumulate = accumulate};
    const int64_t step = at_.head_tiles == 1 ? 4 : 2;  // value tiles of a block
    for (int64_t h = 0; h < at_.head_tiles; h += 2) {
      const int64_t heads[2] = {h, std::min(h + 1, at_.head_tiles - 1)};
      for (int64_t k = 0; k < 2; ++k) block.a[k] = at_.weight_tile(heads[k]);
      for (int64_t j = 0; j < at_.value_tiles; j += step) {
        for (int64_t i = 0; i < step; ++i) {
          const int64_t value = std::min(j + i, at_.value_tiles - 1);
          block.b[i] = at_.value_tile(value);
          block.c[i] = at_.output_tile(heads[0], value);
          if (step == 2) block.c[2 + i] = at_.output_tile(heads[1], value);
        }
        step == 4 ? TileProduct1x4(block) : TileProduct2x2(block);
      }
    }
  }

 private:
  // One tile of query rows has four products of tiles at a time with keys, more have two by two.
  int64_t step_keys() const { return at_.head_tiles == 1 ? 2 * kTileStepKeys : kTileStepKeys; }
  uint16_t* zeros() const { return at_.row_word(2); }

  // Decodes rows into tiles of keys and of values, from the first that is not packed to `end`; at
  // the end of all rows zeros up to a multiple of 32.
  HWY_INLINE void Pack(int64_t end) {
    const int64_t last = end < count() ? end : (count() + kTileDepth - 1) / kTileDepth * kTileDepth;
    WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR {
      for (; packed_ < last; packed_ += 2) PackPair(codec, packed_);
    });
  }

  template <class Codec>
  HWY_INLINE void PackPair(const Codec& codec, int64_t row) {
    const uint16_t* rows[2];
    for (int64_t k = 0; k < 2; ++k) {
      rows[k] = row + k < count() ? Words(codec, row + k, at_.row_word(k)) : zeros();
    }
    const int64_t key = row % kPartKeys;
    const int64_t place = row % step_keys();
    const RowPair pair = {rows[0], rows[1], place % kTileRows, at_.key_tile(place / kTileRows),
                          at_.value_tile(0) + key / kTileDepth * kTileWords +
                              key % kTileDepth / 2 * (2 * kTileColumns)};
    InterleaveRows(pair, at_);
  }

  // Scores of keys [begin, end) of the tile, a step.
  HWY_INLINE void Step(int64_t begin, int64_t end) {
    const ComingRows coming = Coming(packed_, step_keys());
    const int64_t blocks = at_.query_terms * ((at_.head_tiles + 1) / 2);
    int64_t made = 0;
    const int64_t first = begin / kTileRows;
    const int64_t count = (end - begin + kTileRows - 1) / kTileRows;
    for (int64_t term = 0; term < at_.query_terms; ++term) {
      TileBlock block{.k_tiles = at_.depth_tiles, .accumulate = term > 0};
      const int64_t keys = at_.head_tiles == 1 ? 4 : 2;
      for (int64_t h = 0; h < at_.head_tiles; h += 2) {
        const int64_t heads[2] = {h, std::min(h + 1, at_.head_tiles - 1)};
        block.coming = coming.Part(made++, blocks);
        for (int64_t j = 0; j < 2; ++j) block.b[j] = at_.query_tile(term, heads[j]);
        for (int64_t i = 0; i < keys; ++i) {
          const int64_t key = std::min(i, count - 1);
          block.a[i] = at_.key_tile(key);
          block.c[keys == 4 ? i : 2 * i] = at_.score_tile(heads[0], first + key);
          if (keys == 2) block.c[2 * i + 1] = at_.score_tile(heads[1], first + key);
        }
        keys == 4 ? TileProduct4x1(block) : TileProduct2x2(block);
      }
    }
  }

  int64_t packed_ = 0;  // rows before it are in tiles
};

// For few query rows: for 16 of them packing costs as much as half of their products.
class RowsInPlace : public TaskRows {
 public:
  using TaskRows::TaskRows;

  HWY_INLINE void PackFourColumns(const uint16_t* rows, int64_t column, uint16_t* tiles) const {
    PackFourQuads(rows, at_.row_words(), column, tiles);
  }

  HWY_INLINE void AskForFirst() { Ask(Coming(0, kTileRows)); }

  HWY_INLINE void Begin() { std::fill_n(at_.row_word(kPartKeys), at_.row_words(), uint16_t{0}); }
  HWY_INLINE void End() {}

  // Scores of rows [tile, tile + count) of the task.
  HWY_INLINE void Scores(int64_t tile, int64_t count) {
    const int64_t products = at_.query_terms * at_.head_tiles;
    for (int64_t i = count; i % kTileDepth != 0; ++i) rows_[i] = at_.row_word(kPartKeys);
    for (int64_t key = 0; key < count; key += kTileRows) {
      Find(tile, key, std::min(key + kTileRows, count));
      const ComingRows coming = Coming(tile + key + kTileRows, kTileRows);
      for (int64_t i = 0; i < products; ++i) {
        const int64_t term = i / at_.head_tiles;
        const int64_t head = i % at_.head_tiles;
        MultiplyRowsByQuads({.rows = rows_ + key,
                             .q = at_.query_tile(term, head),
                             .k_tiles = at_.depth_tiles,
                             .accumulate = term > 0,
                             .c = at_.score_tile(head, key / kTileRows),
                             .coming = coming.Part(i, products)});
      }
    }
  }

  // Adds the values of the same rows under their weights, or sets them.
  HWY_INLINE void Values(bool accumulate, int64_t k_tiles) const {
    for (int64_t j = 0; j < at_.value_tiles; j += 2) {
      for (int64_t h = 0; h < at_.head_tiles; ++h) {
        MultiplyTilesByRows({.a = at_.weight_tile(h),
                             .rows = rows_,
                             .column = j * kTileColumns,
                             .k_tiles = k_tiles,
                             .num_a_rows = std::min(task_.num_rows() - h * kTileRows, kTileRows),
                             .accumulate = accumulate,
                             .c = {at_.output_tile(h, j), at_.output_tile(h, j + 1)}});
      }
    }
  }

 private:
  // Rows [begin, end) of the tile as words.
  HWY_INLINE void Find(int64_t tile, int64_t begin, int64_t end) {
    WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR {
      for (int64_t i = begin; i < end; ++i) rows_[i] = Words(codec, tile + i, at_.row_word(i));
    });
  }

  const uint16_t* rows_[kPartKeys];
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
