// SPDX-License-Identifier: Apache-2.0
// One query token against a segment of its sequence's keys, for any pair of codecs.
//
// Memory-bound, so keys and values stream through once, in the order in which they lie in memory:
// for a tile of keys first all keys' rows of all heads, then all values' rows. Each row is decoded
// in registers and used for all query heads of its KV head.
// Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SEGMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SEGMENT_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SEGMENT_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SEGMENT_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_decode-inl.h"
#include "pagefuse/ops/kernels/attention/paged_attention_decode.h"
#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/kernels/attention/paged_attention_words-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How far ahead of its use memory is asked for. Less leaves the memory idle at times, more drives
// what is in use out of the first-level cache.
constexpr int64_t kPrefetchBytes = 4096;

// Codecs of words (paged_attention_words-inl.h) have loops of their own, in place of DotStep and
// AccumulateStep: with queries of which they make words (StoreQuery, then Dot), and with a tile's
// weights of which they make words (StoreWeights, then Accumulate).
template <class Codec>
constexpr bool kTakesWords = requires {
  Codec::kTakesWords;
};

// Whose sums are integers of a tile.
template <class Codec>
constexpr bool SumsIntegers() {
  if constexpr (kTakesWords<Codec>) return Codec::Products::kIntegers;
  return false;
}

template <class KeyCodec, class ValueCodec>
class SegmentDecoder {
  // Rows of a tile's keys or values. Step i takes rows i, i + stride, i + 2 stride, ...: each of
  // these runs through memory on its own, mostly in blocks of its own, where the processor's
  // prefetching can follow it (it follows one run a page).
  struct Part {
    const RowAddress* rows;
    int64_t stride;  // and number of steps
    const CacheRows* cache;
    int64_t row_bytes;
  };

 public:
  SegmentDecoder(const PagedDecodeTask& task, const KeyCodec& keys, const ValueCodec& values)
      : task_(task),
        p_(*task.problem),
        key_codec_(keys),
        value_codec_(values),
        group_(p_.group()),
        at_(p_, task.scratch),
        score_row_(MakeScoreRow(p_, task.b, 0, first_row())) {}

  HWY_INLINE void Run() {
    Begin();
    int64_t begin = task_.keys.begin;
    int64_t end = TileEnd(begin);
    FindRows(p_.keys, begin, end, rows_);
    while (begin < end) {
      const int64_t next_end = TileEnd(end);
      Tile(begin, end, next_end);
      begin = end;
      end = next_end;
    }
    End();
  }

 private:
  size_t size() const { return static_cast<size_t>(p_.head_size); }
  int64_t first_row() const { return task_.first_head * group_; }
  int64_t last_row() const { return task_.last_head * group_; }
  float* partial(int64_t h) const { return task_.partials + h * PagedDecodePartialSize(p_); }

  // Begin, End and what is called once a tile stand apart: they would be most of what is compiled
  // for each pair of codecs.
  HWY_NOINLINE void Begin() {
    for (int64_t h = first_row(); h < last_row(); ++h) {
      const float* from = task_.query + h * p_.head_size;
      float* query = at_.query + h * at_.row_floats;
      std::fill(query + p_.head_size, query + at_.row_floats, 0.0f);
      if constexpr (kTakesWords<KeyCodec>) {
        at_.score_units[h] = key_codec_.StoreQuery(from, size(), reinterpret_cast<int16_t*>(query));
      } else if (IsEvenOdd<KeyCodec>(size())) {
        SplitEvenOdd(from, query);
      } else {
        std::copy_n(from, p_.head_size, query);
      }
      std::fill_n(at_.output + h * at_.row_floats, at_.row_floats, 0.0f);
      if constexpr (SumsIntegers<ValueCodec>()) {
        std::fill_n(at_.sums + h * at_.row_floats, at_.row_floats, 0);
      }
      partial(h)[0] = -std::numeric_limits<float>::infinity();
      partial(h)[1] = 0;
      at_.offsets[h] = 0;
    }
  }

  HWY_NOINLINE void End() {
    for (int64_t h = first_row(); h < last_row(); ++h) {
      const float* output = at_.output + h * at_.row_floats;
      float* values = partial(h) + 2;
      if constexpr (kTakesWords<ValueCodec>) {
        StoreInOrder(output, values);
      } else if (IsEvenOdd<ValueCodec>(size())) {
        JoinEvenOdd(output, values);
      } else {
        for (int64_t d = 0; d < p_.head_size; ++d) values[d] = output[d] * ValueCodec::kUnit;
      }
      if constexpr (ValueCodec::kRowOffset) {
        for (int64_t d = 0; d < p_.head_size; ++d) values[d] += at_.offsets[h];
      }
    }
  }

  // A row of queries into the order in which LoadTwo gives elements.
  HWY_INLINE void SplitEvenOdd(const float* HWY_RESTRICT row, float* HWY_RESTRICT to) const {
    constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    for (size_t d = 0; d < size(); d += 2 * kLanes) {
      for (size_t i = 0; i < 2 * kLanes; ++i) to[d + i % 2 * kLanes + i / 2] = row[d + i];
    }
  }

  // The inverse, from an output row.
  HWY_INLINE void JoinEvenOdd(const float* HWY_RESTRICT row, float* HWY_RESTRICT to) const {
    constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    for (size_t d = 0; d < size(); d += 2 * kLanes) {
      for (size_t i = 0; i < 2 * kLanes; ++i) to[d + i] = row[d + i % 2 * kLanes + i / 2];
    }
  }

  // The same of a codec of words.
  HWY_INLINE void StoreInOrder(const float* HWY_RESTRICT row, float* HWY_RESTRICT to) const {
    for (size_t d = 0; d < size(); d += ValueCodec::kStepElements) {
      for (size_t i = 0; i < ValueCodec::kStepElements; ++i) {
        to[d + ValueCodec::PairElement(i)] = row[d + i];
      }
    }
  }

  int64_t TileEnd(int64_t begin) const { return std::min(task_.keys.end, begin + kPaTileKeys); }

  // rows_ holds the tile's key rows; it gets its value rows and the key rows of [end, next_end),
  // the next tile, behind them.
  HWY_INLINE void Tile(int64_t begin, int64_t end, int64_t next_end) {
    const int64_t count = end - begin;
    const int64_t padded = RoundUpToStep(count);
    const int64_t next_padded = RoundUpToStep(next_end - end);
    FindRows(p_.values, begin, end, rows_ + padded);
    FindRows(p_.keys, end, next_end, rows_ + 2 * padded);
    parts_[0] = {rows_, padded / kStepKeys, &p_.keys, p_.key_row_bytes()};
    parts_[1] = {rows_ + padded, padded / kStepKeys, &p_.values, p_.value_row_bytes()};
    parts_[2] = {rows_ + 2 * padded, next_padded / kStepKeys, &p_.keys, p_.key_row_bytes()};
    if (begin == task_.keys.begin) StartPrefetch();

    for (int64_t step = 0; step < parts_[0].stride; ++step) Keys(step);
    const KeyInterval visible{begin, end};
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    const size_t last = (static_cast<size_t>(padded) + lanes - 1) / lanes * lanes;
    if constexpr (KeyCodec::kUnitLength) {
      if (key_codec_.norm_correction) DivideByLengths(last);
    }
    OrderTile();
    // The memory would be idle meanwhile.
    const int64_t num_rows = last_row() - first_row();
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      Prefetch(units_ahead_ * (kv * group_ - first_row()) / num_rows);
      for (int64_t h = kv * group_; h < (kv + 1) * group_; ++h) Weights(h, kv, visible, last);
    }
    for (int64_t step = 0; step < parts_[1].stride; ++step) Values(step);
    if constexpr (SumsIntegers<ValueCodec>()) TakeSums();

    std::copy_n(parts_[2].rows, next_padded, rows_);
    ahead_.part = std::max(0, ahead_.part - 2);
  }

  static int64_t RoundUpToStep(int64_t count) {
    return (count + kStepKeys - 1) / kStepKeys * kStepKeys;
  }

  // Prefetching runs some units ahead of the work. A unit is one head's rows of one step.
  HWY_NOINLINE void StartPrefetch() {
    const int64_t unit_bytes = kStepKeys * (p_.key_row_bytes() + p_.value_row_bytes()) / 2;
    units_ahead_ = (kPrefetchBytes + unit_bytes - 1) / unit_bytes;
    Prefetch(0);
  }

  // One more unit is about to be worked on.
  HWY_INLINE void NextUnit() {
    ++units_worked_;
    Prefetch(0);
  }

  // Goes `extra` units further ahead than usual.
  HWY_INLINE void Prefetch(int64_t extra) {
    for (; units_fetched_ < units_worked_ + units_ahead_ + extra; ++units_fetched_) PrefetchUnit();
  }

  HWY_INLINE void PrefetchUnit() {
    constexpr int64_t kLine = 64;
    while (ahead_.part < 3 && ahead_.step == parts_[ahead_.part].stride) {
      ahead_.step = 0;
      ++ahead_.part;
    }
    if (ahead_.part == 3) return;
    const Part& part = parts_[ahead_.part];
    const int64_t offset = (task_.first_head + ahead_.head) * part.cache->data_strides.head;
    for (int64_t k = 0; k < kStepKeys; ++k) {
      const RowAddress& row = part.rows[ahead_.step + k * part.stride];
      for (int64_t i = 0; i < part.row_bytes; i += kLine) hwy::Prefetch(row.data + offset + i);
      if (KeyCodec::kRowScale && ahead_.part != 1 && ahead_.head == 0) hwy::Prefetch(row.scale);
    }
    if (++ahead_.head < task_.last_head - task_.first_head) return;
    ahead_.head = 0;
    ++ahead_.step;
  }

  // Rows of head 0 of keys [begin, end), none if it is empty. A step that reaches past the end
  // repeats the last row there, with a weight of 0.
  HWY_NOINLINE void FindRows(const CacheRows& cache, int64_t begin, int64_t end,
                             RowAddress* HWY_RESTRICT rows) const {
    const int64_t count = end - begin;
    if (count == 0) return;
    const int32_t* block = p_.block_table + task_.b * p_.table_columns + begin / p_.block_size;
    int64_t in_block = begin % p_.block_size;
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = cache.At(*block, in_block, 0);
      if (++in_block == p_.block_size) {
        in_block = 0;
        ++block;
      }
    }
    for (int64_t i = count; i % kStepKeys != 0; ++i) rows[i] = rows[count - 1];
  }

  // Row k of one head's of a step; without scales its pointer to them has no meaning.
  HWY_INLINE RowAddress RowOf(const Part& part, int64_t step, size_t k, int64_t kv_head) const {
    const RowAddress& row = part.rows[step + static_cast<int64_t>(k) * part.stride];
    return {row.data + kv_head * part.cache->data_strides.head,
            row.scale + kv_head * part.cache->scale_strides.head};
  }

  // Opens one head's rows of a step.
  template <class Codec>
  HWY_INLINE void Open(const Codec& codec, const Part& part, int64_t step, int64_t kv_head,
                       typename Codec::Row (&opened)[kStep]) const {
    for (size_t k = 0; k < kStep; ++k) opened[k] = codec.Open(RowOf(part, step, k, kv_head));
  }

  HWY_INLINE void Keys(int64_t step) {
    const Part& part = parts_[0];
    // OrderTile will read all of the tile's.
    for (int64_t k = 0; k < kStepKeys && ValueCodec::kRowScale; ++k) {
      hwy::Prefetch(parts_[1].rows[step + k * parts_[1].stride].scale);
    }
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      NextUnit();
      typename KeyCodec::Row opened[kStep];
      Open(key_codec_, part, step, kv, opened);
      const int64_t of_head = kv * kPaTileKeys + step * kStepKeys;
      ForHeads(static_cast<size_t>(group_), [&]<size_t heads>(size_t h) HWY_ATTR {
        const int64_t row = kv * group_ + static_cast<int64_t>(h);
        const float* query = at_.query + row * at_.row_floats;
        const StepSums to = {at_.scores + row * kPaTileKeys + step * kStepKeys,
                             at_.key_squares + of_head};
        if constexpr (KeyCodec::kUnitLength) {
          if (h == 0 && key_codec_.norm_correction) return Dot<heads, true>(opened, query, to);
        }
        Dot<heads, false>(opened, query, to);
      });
      if constexpr (KeyCodec::kRowScale) {
        for (size_t k = 0; k < kStep; ++k) at_.key_scales[of_head + k] = opened[k].scale;
      }
    }
  }

  template <size_t heads, bool squares>
  HWY_INLINE void Dot(const typename KeyCodec::Row (&opened)[kStep], const float* query,
                      const StepSums& to) {
    if constexpr (kTakesWords<KeyCodec>) {
      key_codec_.template Dot<heads, squares>(opened, query, Shape(), to);
    } else {
      DotStep<heads, squares>(key_codec_, opened, query, Shape(), to);
    }
  }

  // Of the tile's keys, `last` scores a head.
  HWY_INLINE void DivideByLengths(size_t last) {
    const hn::ScalableTag<float> df;
    float unit = 1.0f;
    if constexpr (kTakesWords<KeyCodec>) unit = key_codec_.square_unit();
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      const float* HWY_RESTRICT squares = at_.key_squares + kv * kPaTileKeys;
      float* HWY_RESTRICT scales = at_.key_scales + kv * kPaTileKeys;
      for (size_t i = 0; i < last; i += hn::Lanes(df)) {
        const auto length = hn::Sqrt(hn::MulAdd(hn::Load(df, squares + i), hn::Set(df, unit),
                                                hn::Set(df, kTurboQuantSquareFloor)));
        hn::Store(hn::Div(hn::Load(df, scales + i), length), df, scales + i);
      }
    }
  }

  // Scales and offsets of the tile's values and positions of its keys, in the order of the scores.
  HWY_INLINE void OrderTile() {
    const Part& part = parts_[1];
    for (int64_t step = 0; step < part.stride; ++step) {
      for (int64_t k = 0; k < kStepKeys; ++k) {
        at_.key_offsets[step * kStepKeys + k] = static_cast<int32_t>(step + k * part.stride);
      }
      if constexpr (ValueCodec::kRowScale) {
        for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) StoreScales(step, kv);
      }
    }
    // Lanes of the last vector behind the tile.
    for (int64_t i = part.stride * kStepKeys; i < kPaTileKeys; ++i) {
      at_.key_offsets[i] = static_cast<int32_t>(kPaTileKeys);
    }
  }

  // Those of one head's values of a step.
  HWY_INLINE void StoreScales(int64_t step, int64_t kv) {
    const int64_t at = kv * kPaTileKeys + step * kStepKeys;
    if constexpr (requires { value_codec_.StoreScales(nullptr, nullptr, nullptr); }) {
      const uint8_t* fields[kStep];
      for (size_t k = 0; k < kStep; ++k) fields[k] = RowOf(parts_[1], step, k, kv).scale;
      value_codec_.StoreScales(fields, at_.value_scales + at, at_.value_offsets + at);
    } else {
      typename ValueCodec::Row opened[kStep];
      Open(value_codec_, parts_[1], step, kv, opened);
      for (size_t k = 0; k < kStep; ++k) {
        at_.value_scales[at + k] = opened[k].scale;
        if constexpr (ValueCodec::kRowOffset) at_.value_offsets[at + k] = opened[k].offset;
      }
    }
  }

  HWY_INLINE void Weights(int64_t h, int64_t kv, const KeyInterval& visible, size_t last) {
    ScoreRow row = score_row_;
    if (row.has_alibi) row.slope = p_.alibi_slopes[h];
    row.factor *= KeyCodec::kUnit;
    if constexpr (kTakesWords<KeyCodec>) row.factor *= at_.score_units[h];
    row.key_offsets = at_.key_offsets;
    if constexpr (KeyCodec::kRowScale) row.key_scales = at_.key_scales + kv * kPaTileKeys;
    if constexpr (ValueCodec::kRowScale) row.value_scales = at_.value_scales + kv * kPaTileKeys;
    if constexpr (ValueCodec::kRowOffset) row.value_offsets = at_.value_offsets + kv * kPaTileKeys;
    row.visible = {&visible, 1};
    SoftmaxState state{partial(h)[0], partial(h)[1], at_.offsets[h]};
    const float alpha =
        SoftmaxTile(row, visible.begin, 0, last, at_.scores + h * kPaTileKeys, state);
    partial(h)[0] = state.max;
    partial(h)[1] = state.sum;
    at_.offsets[h] = state.offset;
    if constexpr (kTakesWords<ValueCodec>) {
      at_.weight_units[h] = value_codec_.StoreWeights(at_.scores + h * kPaTileKeys, last);
    }
    if (alpha == 1.0f) return;
    const hn::ScalableTag<float> df;
    const auto factor = hn::Set(df, alpha);
    float* HWY_RESTRICT output = at_.output + h * at_.row_floats;
    for (int64_t d = 0; d < at_.row_floats; d += static_cast<int64_t>(hn::Lanes(df))) {
      hn::Store(hn::Mul(hn::Load(df, output + d), factor), df, output + d);
    }
  }

  HWY_INLINE void Values(int64_t step) {
    const Part& part = parts_[1];
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      NextUnit();
      typename ValueCodec::Row opened[kStep];
      Open(value_codec_, part, step, kv, opened);
      ForHeads(static_cast<size_t>(group_), [&]<size_t heads>(size_t h) HWY_ATTR {
        const int64_t row = kv * group_ + static_cast<int64_t>(h);
        const float* weights = at_.scores + row * kPaTileKeys;
        if constexpr (kTakesWords<ValueCodec>) {
          value_codec_.template Accumulate<heads>(opened, weights, static_cast<size_t>(step),
                                                  Shape(), Sums(row));
        } else {
          AccumulateStep<heads>(value_codec_, opened, weights + step * kStepKeys, Shape(),
                                Sums(row));
        }
      });
    }
  }

  // What values are added to: the tile's sums of integers, or the output.
  HWY_INLINE auto* Sums(int64_t row) const {
    if constexpr (SumsIntegers<ValueCodec>()) {
      return at_.sums + row * at_.row_floats;
    } else {
      return at_.output + row * at_.row_floats;
    }
  }

  // Adds the tile's sums to the output, and clears them.
  HWY_INLINE void TakeSums() {
    const hn::ScalableTag<float> df;
    const hn::RebindToSigned<decltype(df)> di;
    for (int64_t h = first_row(); h < last_row(); ++h) {
      const auto unit = hn::Set(df, at_.weight_units[h]);
      float* HWY_RESTRICT output = at_.output + h * at_.row_floats;
      int32_t* HWY_RESTRICT sums = at_.sums + h * at_.row_floats;
      for (int64_t d = 0; d < at_.row_floats; d += static_cast<int64_t>(hn::Lanes(df))) {
        const auto sum = hn::ConvertTo(df, hn::Load(di, sums + d));
        hn::Store(hn::MulAdd(sum, unit, hn::Load(df, output + d)), df, output + d);
        hn::Store(hn::Zero(di), di, sums + d);
      }
    }
  }

  StepShape Shape() const { return {size(), static_cast<size_t>(at_.row_floats)}; }

  const PagedDecodeTask& task_;
  const PagedAttentionProblem& p_;
  const KeyCodec& key_codec_;
  const ValueCodec& value_codec_;
  const int64_t group_;  // query heads of a KV head; a division, so not for inner loops
  const DecodeScratch at_;
  const ScoreRow score_row_;          // of the first row; others differ in the slope
  RowAddress rows_[3 * kPaTileKeys];  // of head 0
  Part parts_[3] = {};                // keys, values, keys of the next tile
  struct {
    int part = 0;
    int64_t step = 0, head = 0;
  } ahead_;  // the next unit to be prefetched
  int64_t units_ahead_ = 0, units_worked_ = 0, units_fetched_ = 0;
};

// Decodes the task with these. Compiled once for each pair, whichever formats have it.
template <class KeyCodec, class ValueCodec>
void DecodeWith(const PagedDecodeTask& task, const KeyCodec& keys, const ValueCodec& values) {
  SegmentDecoder(task, keys, values).Run();
}

// Decodes the task with the views of its format: as words where these suit the query.
template <class Views>
HWY_INLINE void DecodeRows(const PagedDecodeTask& task, const Views& views) {
#if PF_MULTIPLIES_WORDS
  if constexpr (requires { views.ValueWords(); }) {
    using ValueWord = typename decltype(views.ValueWords())::Word;
    const bool suits = WordProducts<ValueWord>::Suit(*task.problem);
    if constexpr (requires { views.KeyWords(); }) {
      using KeyWord = typename decltype(views.KeyWords())::Word;
      if (suits && WordProducts<KeyWord>::Suit(*task.problem)) {
        return DecodeWith(task, WordKeys(views.KeyWords()), WordValues(views.ValueWords()));
      }
      if constexpr (std::is_same_v<KeyWord, ValueWord>) {
        return DecodeWith(task, views.DecodeKeys(), views.DecodeValues());
      }
    }
    if (suits) return DecodeWith(task, views.DecodeKeys(), WordValues(views.ValueWords()));
  }
#endif
  DecodeWith(task, views.DecodeKeys(), views.DecodeValues());
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
