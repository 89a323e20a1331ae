// A task on tiles of bfloat16.
#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/latent/sparse_mla_attention_tiles_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_hwy.h"

// The pieces assume lanes in blocks of four; units for bfloat16 come with AVX-512.
#if HWY_TARGET != HWY_SCALAR
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_tiles-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

bool TilesTaskRun(const SparseMlaTask&) { PF_CHECK(false); }

#else

class TilesTask {
 public:
  explicit TilesTask(const SparseMlaTask& task)
      : task_(task), p_(*task.problem), at_(p_, task.num_rows(), task.scratch) {}

  HWY_INLINE bool Run() {
    if (!PartlySeenRowsAreFinite(task_)) return false;
    const ComingRows first = NextStep();
    for (int64_t line = 0; line < first.lines; ++line) first.Ask(line);
    PackQuery();
    std::fill_n(at_.rows + 2 * at_.row_words(), at_.row_words(), uint16_t{0});
    const auto count = static_cast<int64_t>(task_.rows.size());
    for (int64_t tile = 0; tile < count; tile += kPartKeys) {
      Tile(tile, std::min(kPartKeys, count - tile));
    }
    for (int64_t r = 0; r < task_.num_rows(); ++r) Put(r);
    return true;
  }

 private:
  HWY_INLINE void PackQuery() {
    const int64_t words = at_.row_words();
    const int64_t first = task_.first_token * p_.num_heads;
    for (int64_t r = 0; r < at_.head_tiles * kTileRows; r += 4) {
      for (int64_t k = 0; k < 4; ++k) {
        uint16_t* row = at_.rows + k * words;
        if (r + k < task_.num_rows()) {
          SplitQueryRow(p_, first + r + k, words, row, 4 * words);
        } else {
          std::fill_n(row, words, uint16_t{0});
          std::fill_n(row + 4 * words, words, uint16_t{0});
        }
      }
      for (int64_t term = 0; term < at_.query_terms; ++term) {
        PackFourColumns(at_.rows + term * 4 * words, words, r % kTileColumns,
                        at_.query_tile(term, r / kTileColumns));
      }
    }
    std::fill_n(at_.max, at_.head_tiles * kTileRows, -std::numeric_limits<float>::infinity());
    std::fill_n(at_.sum, at_.head_tiles * kTileRows, 0.0f);
  }

  // One tile of query rows has four products of tiles at a time with keys, more have two by two.
  int64_t step_keys() const { return at_.head_tiles == 1 ? 2 * kTileStepKeys : kTileStepKeys; }

  // Rows [tile, tile + count) of the task.
  HWY_INLINE void Tile(int64_t tile, int64_t count) {
    BeginTileProducts();
    for (int64_t step = 0; step < count; step += step_keys()) {
      const int64_t end = std::min(step + step_keys(), count);
      PackRows(tile + end);
      Scores(step, end);
    }
    Softmax(tile, count);
    if (tile > 0) Rescale();
    Values(tile > 0, (count + kTileDepth - 1) / kTileDepth);
    EndTileProducts();
  }

  // Decodes rows into tiles of keys and of values, from the first that is not packed to `end`; at
  // the end of all rows zeros up to a multiple of 32.
  HWY_INLINE void PackRows(int64_t end) {
    const auto all = static_cast<int64_t>(task_.rows.size());
    const int64_t last = end < all ? end : (all + kTileDepth - 1) / kTileDepth * kTileDepth;
    WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR {
      for (; packed_ < last; packed_ += 2) PackPair(codec, packed_);
    });
  }

  template <class Codec>
  HWY_INLINE void PackPair(const Codec& codec, int64_t row) {
    const auto count = static_cast<int64_t>(task_.rows.size());
    const uint16_t* rows[2];
    for (int64_t k = 0; k < 2; ++k) {
      uint16_t* words = at_.rows + k * at_.row_words();
      rows[k] = row + k < count ? Words(codec, row + k, words) : at_.rows + 2 * at_.row_words();
    }
    const int64_t key = row % kPartKeys;
    const int64_t place = row % step_keys();
    const RowPair pair = {rows[0], rows[1], place % kTileRows, at_.key_tile(place / kTileRows),
                          at_.value_tile(0) + key / kTileDepth * kTileWords +
                              key % kTileDepth / 2 * (2 * kTileColumns)};
    InterleaveRows(pair, at_);
  }

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

  // The rows of the next step. Asks for their scales at once.
  HWY_INLINE ComingRows NextStep() {
    const auto all = static_cast<int64_t>(task_.rows.size());
    const int64_t end = std::min(packed_ + step_keys(), all);
    int64_t count = 0;
    for (int64_t row = packed_; row < end; ++row) {
      const RowAddress& address = task_.rows[static_cast<size_t>(row)];
      if (address.scale != nullptr) __builtin_prefetch(address.scale);
      coming_[count++] = address.data;
    }
    constexpr int64_t kLine = 64;
    return {coming_, count, (p_.cache().data_strides.row + kLine - 1) / kLine};
  }

  // Scores of keys [begin, end) of the tile, a step.
  HWY_INLINE void Scores(int64_t begin, int64_t end) {
    const ComingRows coming = NextStep();
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

  HWY_INLINE void Softmax(int64_t tile, int64_t count) {
    const bool sees_all = task_.visible[0] >= tile + count;
    for (int64_t r = 0; r < at_.head_tiles * kTileRows; ++r) {
      int64_t seen = count;
      if (!sees_all) {
        const int64_t token = std::min(r / p_.num_heads, task_.num_tokens - 1);
        seen = std::clamp<int64_t>(task_.visible[token] - tile, 0, count);
      }
      at_.visible[r] = static_cast<int32_t>(seen);
    }
    constexpr float kLog2E = 1.44269504f;
    for (int64_t h = 0; h < at_.head_tiles; ++h) {
      const int64_t row = h * kTileRows;
      const TransposedSoftmax softmax(at_.score_tile(h, 0), count, p_.attributes.scale * kLog2E,
                                      {at_.max + row, at_.base + row, at_.sum + row,
                                       at_.alpha + row, at_.visible + row, sees_all});
      for (int64_t lane = 0; lane < kTileRows; lane += static_cast<int64_t>(hn::Lanes(DF()))) {
        softmax.Begin(lane);
        for (int64_t key = 0; key < count; key += kTileDepth) {
          softmax.Weights(lane, key, at_.weight_tile(h) + key / kTileDepth * kTileWords);
        }
      }
    }
  }

  // What was summed before, under the new maxima.
  HWY_INLINE void Rescale() {
    const DF df;
    for (int64_t r = 0; r < task_.num_rows(); ++r) {
      if (at_.alpha[r] == 1.0f) continue;
      const V factor = hn::Set(df, at_.alpha[r]);
      for (int64_t j = 0; j < at_.value_tiles; ++j) {
        float* at = at_.output_tile(r / kTileRows, j) + r % kTileRows * kTileColumns;
        for (int64_t i = 0; i < kTileColumns; i += static_cast<int64_t>(hn::Lanes(df))) {
          hn::Store(hn::Mul(hn::Load(df, at + i), factor), df, at + i);
        }
      }
    }
  }

  // Adds the values of the tile under their weights, or sets them.
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

  HWY_INLINE void Put(int64_t r) const {
    constexpr float kLn2 = 0.69314718f;
    float* values = at_.row;
    if (task_.rows.empty()) {
      std::fill_n(values, p_.value_size, 0.0f);
    } else {
      const float* tiles = at_.output_tile(r / kTileRows, 0) + r % kTileRows * kTileColumns;
      OrderColumns(tiles, p_.value_size, values);
    }
    task_.Put(r, {at_.max[r] * kLn2, at_.sum[r], values});
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaTilesMemory at_;
  int64_t packed_ = 0;  // rows before it are in tiles
  const uint8_t* coming_[2 * kTileStepKeys];
};

bool TilesTaskRun(const SparseMlaTask& task) { return TilesTask(task).Run(); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(TilesTaskRun);

bool SparseMlaTilesSupports(const SparseMlaProblem& p) {
  return p.query_type != DataType::kFloat && (!p.plain() || p.cache_type == DataType::kBfloat16);
}

int64_t SparseMlaTilesScratch(const SparseMlaProblem& p, int64_t num_rows) {
  return SparseMlaTilesMemory(p, num_rows, nullptr).bytes;
}

bool RunSparseMlaTiles(const SparseMlaTask& task) {
  return HWY_DYNAMIC_DISPATCH(TilesTaskRun)(task);
}

}  // namespace pagefuse
#endif
