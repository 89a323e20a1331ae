// A task on AMX bf16 tiles.
#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/latent/sparse_mla_attention_amx_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_hwy.h"

// The pieces assume lanes in blocks of four; AMX comes with AVX-512.
#if HWY_TARGET != HWY_SCALAR
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_amx-inl.h"
#endif

#ifndef PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_AMX_ONCE_
#define PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_AMX_ONCE_
namespace pagefuse {

// Asks for the cache lines of rows, a few at a time, in the order of the rows.
class RowPrefetch {
 public:
  RowPrefetch(std::span<const RowAddress> rows, int64_t row_bytes)
      : rows_(rows), row_bytes_(row_bytes) {}

  // The next `lines` lines, but none of row `end` or behind it.
  HWY_INLINE void Next(int64_t lines, size_t end) {
    constexpr int64_t kLine = 64;
    end = std::min(end, rows_.size());
    for (; lines > 0 && row_ < end; --lines) {
      if (offset_ == 0 && rows_[row_].scale != nullptr) hwy::Prefetch(rows_[row_].scale);
      hwy::Prefetch(rows_[row_].data + offset_);
      offset_ += kLine;
      if (offset_ < row_bytes_) continue;
      offset_ = 0;
      ++row_;
    }
  }

 private:
  std::span<const RowAddress> rows_;
  int64_t row_bytes_;
  size_t row_ = 0;
  int64_t offset_ = 0;
};

}  // namespace pagefuse
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

bool AmxTaskRun(const SparseMlaTask&) { PF_CHECK(false); }

#else

class AmxTask {
 public:
  explicit AmxTask(const SparseMlaTask& task)
      : task_(task),
        p_(*task.problem),
        at_(p_, task.num_rows(), task.scratch),
        prefetch_(task.rows, p_.plain() ? p_.head_size * 2 : p_.grouped.DataBytes()) {}

  HWY_INLINE bool Run() {
    if (!PartlySeenRowsAreFinite(task_)) return false;
    prefetch_.Next(kLines, ahead_);
    PackQuery();
    const auto count = static_cast<int64_t>(task_.rows.size());
    for (int64_t tile = 0; tile < count; tile += kAmxTileKeys) {
      Tile(tile, std::min(kAmxTileKeys, count - tile));
    }
    for (int64_t r = 0; r < task_.num_rows(); ++r) StorePartial(r);
    return true;
  }

 private:
  // How far ahead of its use memory is asked for, and how much of it between two pieces of work.
  static constexpr size_t kRowsAhead = 96;
  static constexpr int64_t kLines = 24;

  HWY_INLINE void PackQuery() {
    const int64_t words = at_.row_words();
    const int64_t first = task_.first_token * p_.num_heads;
    for (int64_t r = 0; r < at_.head_tiles * kAmxRows; r += 4) {
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
        PackFourColumns(at_.rows + term * 4 * words, words, r % kAmxColumns,
                        at_.query_tile(term, r / kAmxColumns));
      }
    }
    std::fill_n(at_.max, at_.head_tiles * kAmxRows, -std::numeric_limits<float>::infinity());
    std::fill_n(at_.sum, at_.head_tiles * kAmxRows, 0.0f);
  }

  // Rows [tile, tile + count) of the task.
  HWY_INLINE void Tile(int64_t tile, int64_t count) {
    BeginAmxProducts();
    for (int64_t step = 0; step < count; step += kAmxStepKeys) {
      const int64_t keys = std::min(kAmxStepKeys, count - step);
      WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR { Decode(codec, tile + step, keys); });
      Scores(step, (keys + kAmxRows - 1) / kAmxRows);
    }
    Softmax(tile, count);
    if (tile > 0) Rescale();
    Values(tile > 0, (count + kAmxDepth - 1) / kAmxDepth);
    EndAmxProducts();
  }

  // Rows [first, first + count) into tiles of keys and of values, zeros up to whole value tiles.
  template <class Codec>
  HWY_INLINE void Decode(const Codec& codec, int64_t first, int64_t count) {
    uint16_t* zeros = at_.rows + 2 * at_.row_words();
    std::fill_n(zeros, at_.row_words(), uint16_t{0});
    const int64_t padded = (count + kAmxDepth - 1) / kAmxDepth * kAmxDepth;
    const int64_t in_tile = first % kAmxTileKeys;
    for (int64_t j = 0; j < padded; j += 2) {
      ahead_ = static_cast<size_t>(first + j) + kRowsAhead;
      prefetch_.Next(kLines, ahead_);
      const uint16_t* rows[2];
      for (int64_t k = 0; k < 2; ++k) {
        rows[k] =
            j + k < count ? Words(codec, first + j + k, at_.rows + k * at_.row_words()) : zeros;
        const int64_t row = j + k;
        PackRow(rows[k], at_.depth_tiles, row % kAmxRows, at_.key_tile(row / kAmxRows));
      }
      const int64_t key = in_tile + j;
      PackPair(rows[0], rows[1], at_.value_tiles, kAmxTileKeys / kAmxDepth * kAmxWords,
               at_.values + key / kAmxDepth * kAmxWords + key % kAmxDepth * kAmxColumns);
    }
  }

  // A row as bfloat16: where it lies, or decoded to `to`.
  template <class Codec>
  HWY_INLINE const uint16_t* Words(const Codec& codec, int64_t row, uint16_t* to) const {
    const RowAddress address = task_.rows[static_cast<size_t>(row)];
    if constexpr (std::is_same_v<typename Codec::Element, Bfloat16>) {
      if (p_.head_size == at_.row_words()) return reinterpret_cast<const uint16_t*>(address.data);
    }
    DecodeWords(codec, address, static_cast<size_t>(p_.head_size),
                static_cast<size_t>(at_.row_words()), to);
    return to;
  }

  // Scores of `key_tiles` tiles of keys from `step` of the tile on.
  HWY_INLINE void Scores(int64_t step, int64_t key_tiles) {
    for (int64_t term = 0; term < at_.query_terms; ++term) {
      AmxBlock block{.k_tiles = at_.depth_tiles, .accumulate = term > 0};
      if (at_.head_tiles == 1) {
        block.b[0] = at_.query_tile(term, 0);
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t key = std::min(i, key_tiles - 1);
          block.a[i] = at_.key_tile(key);
          block.c[i] = at_.score_tile(0, step / kAmxRows + key);
        }
        AmxProduct4x1(block);
        prefetch_.Next(kLines, ahead_);
        continue;
      }
      for (int64_t i = 0; i < key_tiles; i += 2) {
        for (int64_t h = 0; h < at_.head_tiles; h += 2) {
          ScoreBlock({i, std::min(i + 1, key_tiles - 1)}, {h, std::min(h + 1, at_.head_tiles - 1)},
                     term, step / kAmxRows, block);
        }
      }
    }
  }

  struct TilePair {
    int64_t at[2];
  };
  HWY_INLINE void ScoreBlock(TilePair keys, TilePair heads, int64_t term, int64_t first,
                             AmxBlock& block) {
    for (int i = 0; i < 2; ++i) {
      block.a[i] = at_.key_tile(keys.at[i]);
      block.b[i] = at_.query_tile(term, heads.at[i]);
      for (int j = 0; j < 2; ++j) {
        block.c[2 * i + j] = at_.score_tile(heads.at[j], first + keys.at[i]);
      }
    }
    AmxProduct2x2(block);
    prefetch_.Next(kLines, ahead_);
  }

  HWY_INLINE void Softmax(int64_t tile, int64_t count) {
    const bool sees_all = task_.visible[0] >= tile + count;
    for (int64_t r = 0; r < at_.head_tiles * kAmxRows; ++r) {
      const int64_t token = std::min(r / p_.num_heads, task_.num_tokens - 1);
      at_.visible[r] =
          static_cast<int32_t>(std::clamp<int64_t>(task_.visible[token] - tile, 0, count));
    }
    for (int64_t h = 0; h < at_.head_tiles; ++h) {
      const TransposedSoftmax softmax(at_.score_tile(h, 0), count, p_.attributes.scale);
      const int64_t row = h * kAmxRows;
      const TransposedSoftmax::State state = {at_.max + row, at_.sum + row, at_.alpha + row,
                                              at_.visible + row, sees_all};
      for (int64_t lane = 0; lane < kAmxRows; lane += static_cast<int64_t>(hn::Lanes(DF()))) {
        softmax.Run(lane, state, at_.weight_tile(h));
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
        float* at = at_.output_tile(r / kAmxRows, j) + r % kAmxRows * kAmxColumns;
        for (int64_t i = 0; i < kAmxColumns; i += static_cast<int64_t>(hn::Lanes(df))) {
          hn::Store(hn::Mul(hn::Load(df, at + i), factor), df, at + i);
        }
      }
    }
  }

  HWY_INLINE void Values(bool accumulate, int64_t k_tiles) {
    AmxBlock block{.k_tiles = k_tiles, .accumulate = accumulate};
    const int64_t last = at_.value_tiles - 1;
    if (at_.head_tiles == 1) {
      block.a[0] = at_.weight_tile(0);
      for (int64_t first = 0; first <= last; first += 4) {
        for (int64_t j = 0; j < 4; ++j) {
          block.b[j] = at_.value_tile(std::min(first + j, last));
          block.c[j] = at_.output_tile(0, std::min(first + j, last));
        }
        AmxProduct1x4(block);
        prefetch_.Next(kLines, ahead_);
      }
      return;
    }
    for (int64_t j = 0; j <= last; j += 2) {
      for (int64_t h = 0; h < at_.head_tiles; h += 2) {
        ValueBlock({h, std::min(h + 1, at_.head_tiles - 1)}, {j, std::min(j + 1, last)}, block);
      }
    }
  }

  HWY_INLINE void ValueBlock(TilePair heads, TilePair values, AmxBlock& block) {
    for (int i = 0; i < 2; ++i) {
      block.a[i] = at_.weight_tile(heads.at[i]);
      block.b[i] = at_.value_tile(values.at[i]);
      for (int j = 0; j < 2; ++j) {
        block.c[2 * i + j] = at_.output_tile(heads.at[i], values.at[j]);
      }
    }
    AmxProduct2x2(block);
    prefetch_.Next(kLines, ahead_);
  }

  HWY_INLINE void StorePartial(int64_t r) const {
    task_.SetPartial(r, at_.max[r], at_.sum[r]);
    float* values = task_.partial(r).values;
    if (task_.rows.empty()) {
      std::fill_n(values, p_.value_size, 0.0f);
      return;
    }
    for (int64_t d = 0; d < p_.value_size; d += kAmxColumns) {
      const float* from =
          at_.output_tile(r / kAmxRows, d / kAmxColumns) + r % kAmxRows * kAmxColumns;
      std::copy_n(from, std::min(kAmxColumns, p_.value_size - d), values + d);
    }
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaAmxMemory at_;
  RowPrefetch prefetch_;
  size_t ahead_ = kRowsAhead;  // rows from here on are not asked for yet
};

bool AmxTaskRun(const SparseMlaTask& task) { return AmxTask(task).Run(); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(AmxTaskRun);

bool SparseMlaAmxSupports(const SparseMlaProblem& p) {
  return p.query_type != DataType::kFloat && (!p.plain() || p.cache_type == DataType::kBfloat16);
}

int64_t SparseMlaAmxScratch(const SparseMlaProblem& p, int64_t num_rows) {
  return SparseMlaAmxMemory(p, num_rows, nullptr).bytes;
}

bool RunSparseMlaAmx(const SparseMlaTask& task) { return HWY_DYNAMIC_DISPATCH(AmxTaskRun)(task); }

}  // namespace pagefuse
#endif
