// One query token against a segment of its sequence's keys.
//
// Memory-bound, so keys and values stream through once, in the order in which they lie in memory:
// for a tile of keys first all keys' rows of all heads, then all values' rows. Each row is decoded
// in registers and used for all query heads of its KV head.
#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/paged_attention_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/pagefuse/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/paged_attention_softmax-inl.h"

#ifndef PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_ONCE_
#define PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_ONCE_
namespace pagefuse {

// Where a decode task keeps its intermediates.
struct DecodeScratch {
  int64_t row_floats;   // floats of a query or output row, padded for whole vectors
  float* query;         // [Hq][row_floats]
  float* output;        // [Hq][row_floats]
  float* scores;        // [Hq][kPaTileKeys]
  float* key_scales;    // [Hk][kPaTileKeys]
  float* value_scales;  // [Hk][kPaTileKeys]
  int64_t bytes;

  DecodeScratch(const PagedAttentionProblem& p, std::byte* base) {
    constexpr int64_t kPadding = 16;  // the longest vectors
    row_floats = (p.head_size + kPadding - 1) / kPadding * kPadding;
    bytes = 0;
    const auto take = [&](int64_t floats) {
      auto* at = reinterpret_cast<float*>(base + bytes);
      bytes += (floats * 4 + 63) / 64 * 64;
      return at;
    };
    query = take(p.num_heads * row_floats);
    output = take(p.num_heads * row_floats);
    scores = take(p.num_heads * kPaTileKeys);
    key_scales = take(p.num_kv_heads * kPaTileKeys);
    value_scales = take(p.num_kv_heads * kPaTileKeys);
  }
};

}  // namespace pagefuse
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys (values) whose rows are in registers at a time.
constexpr size_t kStep = 4;
// Query heads whose sums are: with four keys they fill half of 32 registers.
constexpr size_t kMaxHeads = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Sums of the lanes of each 128-bit block.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<float>> AddBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return AddBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sums of all lanes of a, b, c and d, in lanes 0 to 3.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<hn::Full128<float>> SumFour(DF df, V a, V b, V c, V d) {
  const hn::Repartition<uint64_t, DF> du64;
  const auto ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const auto cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(du64, ab);
  const auto cd64 = hn::BitCast(du64, cd);
  const auto sum = hn::Add(hn::BitCast(df, hn::InterleaveLower(du64, ab64, cd64)),
                           hn::BitCast(df, hn::InterleaveUpper(du64, ab64, cd64)));
  return AddBlocks(df, sum);
}

// Dot products of kStep keys with `heads` query rows: scores[h * kPaTileKeys + 0, kStep).
template <size_t heads, class Codec>
HWY_INLINE void DotStep(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                        const float* HWY_RESTRICT query, const DecodeScratch& at, size_t size,
                        float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  V sums[heads][kStep];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(df);
  }
  const auto add = [&](size_t d, const V(&keys)[kStep]) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      const V q = hn::Load(df, query + h * at.row_floats + d);
      for (size_t k = 0; k < kStep; ++k) sums[h][k] = hn::MulAdd(q, keys[k], sums[h][k]);
    }
  };
  size_t d = 0;
  for (; d + lanes <= size; d += lanes) {
    V keys[kStep];
    for (size_t k = 0; k < kStep; ++k) keys[k] = codec.Load(df, rows[k], d);
    add(d, keys);
  }
  if (d < size) {
    V keys[kStep];
    for (size_t k = 0; k < kStep; ++k) keys[k] = codec.LoadN(df, rows[k], d, size - d);
    add(d, keys);
  }
  for (size_t h = 0; h < heads; ++h) {
    const auto four = SumFour(df, sums[h][0], sums[h][1], sums[h][2], sums[h][3]);
    hn::StoreU(four, hn::Full128<float>(), scores + h * kPaTileKeys);
  }
}

// output[h] += sum over kStep keys of weights[h * kPaTileKeys + k] times their values.
template <size_t heads, class Codec>
HWY_INLINE void AccumulateStep(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                               const float* HWY_RESTRICT weights, const DecodeScratch& at,
                               size_t size, float* HWY_RESTRICT output) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  V w[heads][kStep];
  for (size_t h = 0; h < heads; ++h) {
    for (size_t k = 0; k < kStep; ++k) w[h][k] = hn::Set(df, weights[h * kPaTileKeys + k]);
  }
  const auto add = [&](size_t d, const V(&values)[kStep]) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      float* HWY_RESTRICT to = output + h * at.row_floats + d;
      V o = hn::Load(df, to);
      for (size_t k = 0; k < kStep; ++k) o = hn::MulAdd(w[h][k], values[k], o);
      hn::Store(o, df, to);
    }
  };
  size_t d = 0;
  for (; d + lanes <= size; d += lanes) {
    V values[kStep];
    for (size_t k = 0; k < kStep; ++k) values[k] = codec.Load(df, rows[k], d);
    add(d, values);
  }
  if (d < size) {
    V values[kStep];
    for (size_t k = 0; k < kStep; ++k) values[k] = codec.LoadN(df, rows[k], d, size - d);
    add(d, values);
  }
}

// Calls f.operator()<n>(first head) for groups of query heads that together are `group`.
template <class F>
HWY_INLINE void ForHeads(size_t group, const F& f) {
  size_t h = 0;
  for (; h + kMaxHeads <= group; h += kMaxHeads) f.template operator()<kMaxHeads>(h);
  if constexpr (kMaxHeads > 2) {
    if (h + 3 == group) {
      f.template operator()<3>(h);
      return;
    }
    if (h + 2 == group) {
      f.template operator()<2>(h);
      return;
    }
  }
  if (h < group) f.template operator()<1>(h);
}

template <class Codec>
class SegmentDecoder {
 public:
  SegmentDecoder(const PagedDecodeTask& task, const Codec& codec)
      : task_(task), p_(*task.problem), codec_(codec), at_(p_, task.scratch) {}

  HWY_INLINE void Run() {
    Begin();
    for (int64_t j = task_.keys.begin; j < task_.keys.end; j += kPaTileKeys) {
      Tile(j, std::min(task_.keys.end, j + kPaTileKeys));
    }
    End();
  }

 private:
  size_t group() const { return static_cast<size_t>(p_.group()); }
  size_t size() const { return static_cast<size_t>(p_.head_size); }
  int64_t first_row() const { return task_.first_head * p_.group(); }
  int64_t last_row() const { return task_.last_head * p_.group(); }
  float* partial(int64_t h) const { return task_.partials + h * PagedDecodePartialSize(p_); }

  HWY_INLINE void Begin() {
    const int64_t token = p_.query_start_loc[task_.b];
    for (int64_t h = first_row(); h < last_row(); ++h) {
      float* query = at_.query + h * at_.row_floats;
      std::fill(query + p_.head_size, query + at_.row_floats, 0.0f);
      LoadQueryRow(p_, token, h, query);
      std::fill_n(at_.output + h * at_.row_floats, at_.row_floats, 0.0f);
      partial(h)[0] = -std::numeric_limits<float>::infinity();
      partial(h)[1] = 0;
    }
  }

  HWY_INLINE void End() {
    for (int64_t h = first_row(); h < last_row(); ++h) {
      std::copy_n(at_.output + h * at_.row_floats, p_.head_size, partial(h) + 2);
    }
  }

  HWY_INLINE void Tile(int64_t begin, int64_t end) {
    FindRows(p_.keys, begin, end, key_rows_);
    FindRows(p_.values, begin, end, value_rows_);
    const int64_t count = end - begin;
    for (int64_t j = 0; j < count; j += kStep) Keys(key_rows_ + j, j);
    const KeyInterval visible{begin, end};
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    const size_t last = (static_cast<size_t>(count) + lanes - 1) / lanes * lanes;
    LoadValueScales(count);
    for (int64_t h = first_row(); h < last_row(); ++h) Weights(h, visible, last);
    for (int64_t j = 0; j < count; j += kStep) Values(value_rows_ + j, j);
  }

  // Rows of head 0 of keys [begin, end). A step that reaches past the end repeats the last row
  // there, with a weight of 0.
  HWY_INLINE void FindRows(const CacheRows& cache, int64_t begin, int64_t end,
                           RowAddress* HWY_RESTRICT rows) const {
    const int32_t* block = p_.block_table + task_.b * p_.table_columns + begin / p_.block_size;
    int64_t in_block = begin % p_.block_size;
    const int64_t count = end - begin;
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = cache.At(*block, in_block, 0);
      if (++in_block == p_.block_size) {
        in_block = 0;
        ++block;
      }
    }
    for (int64_t i = count; i % static_cast<int64_t>(kStep) != 0; ++i) rows[i] = rows[count - 1];
  }

  // Opens the rows of one head.
  HWY_INLINE void Open(const RowAddress* HWY_RESTRICT rows, const CacheRows& cache, int64_t kv_head,
                       typename Codec::Row (&opened)[kStep]) const {
    for (size_t k = 0; k < kStep; ++k) {
      RowAddress row = rows[k];
      row.data += kv_head * cache.data_strides.head;
      if constexpr (Codec::kRowScale) row.scale += kv_head * cache.scale_strides.head;
      opened[k] = codec_.Open(row);
    }
  }

  HWY_INLINE void Keys(const RowAddress* HWY_RESTRICT rows, int64_t offset) {
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      typename Codec::Row opened[kStep];
      Open(rows, p_.keys, kv, opened);
      if constexpr (Codec::kRowScale) {
        for (size_t k = 0; k < kStep; ++k) {
          at_.key_scales[kv * kPaTileKeys + offset + static_cast<int64_t>(k)] = opened[k].scale;
        }
      }
      ForHeads(group(), [&]<size_t heads>(size_t h) HWY_ATTR {
        const int64_t row = kv * p_.group() + static_cast<int64_t>(h);
        DotStep<heads>(codec_, opened, at_.query + row * at_.row_floats, at_, size(),
                       at_.scores + row * kPaTileKeys + offset);
      });
    }
  }

  HWY_INLINE void LoadValueScales(int64_t count) {
    if constexpr (Codec::kRowScale) {
      for (int64_t j = 0; j < count; ++j) {
        RowAddress row = value_rows_[j];
        row.data += task_.first_head * p_.values.data_strides.head;
        row.scale += task_.first_head * p_.values.scale_strides.head;
        for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
          at_.value_scales[kv * kPaTileKeys + j] = codec_.Open(row).scale;
          row.data += p_.values.data_strides.head;
          row.scale += p_.values.scale_strides.head;
        }
      }
    }
  }

  HWY_INLINE void Weights(int64_t h, const KeyInterval& visible, size_t last) {
    ScoreRow row = MakeScoreRow(p_, task_.b, 0, h);
    const int64_t kv = h / p_.group();
    if constexpr (Codec::kRowScale) {
      row.key_scales = at_.key_scales + kv * kPaTileKeys;
      row.value_scales = at_.value_scales + kv * kPaTileKeys;
    }
    row.visible = {&visible, 1};
    SoftmaxState state{partial(h)[0], partial(h)[1]};
    const float alpha =
        SoftmaxTile(row, visible.begin, 0, last, at_.scores + h * kPaTileKeys, state);
    partial(h)[0] = state.max;
    partial(h)[1] = state.sum;
    if (alpha == 1.0f) return;
    const hn::ScalableTag<float> df;
    const auto factor = hn::Set(df, alpha);
    float* HWY_RESTRICT output = at_.output + h * at_.row_floats;
    for (int64_t d = 0; d < at_.row_floats; d += static_cast<int64_t>(hn::Lanes(df))) {
      hn::Store(hn::Mul(hn::Load(df, output + d), factor), df, output + d);
    }
  }

  HWY_INLINE void Values(const RowAddress* HWY_RESTRICT rows, int64_t offset) {
    for (int64_t kv = task_.first_head; kv < task_.last_head; ++kv) {
      typename Codec::Row opened[kStep];
      Open(rows, p_.values, kv, opened);
      ForHeads(group(), [&]<size_t heads>(size_t h) HWY_ATTR {
        const int64_t row = kv * p_.group() + static_cast<int64_t>(h);
        AccumulateStep<heads>(codec_, opened, at_.scores + row * kPaTileKeys + offset, at_, size(),
                              at_.output + row * at_.row_floats);
      });
    }
  }

  const PagedDecodeTask& task_;
  const PagedAttentionProblem& p_;
  const Codec& codec_;
  const DecodeScratch at_;
  RowAddress key_rows_[kPaTileKeys];
  RowAddress value_rows_[kPaTileKeys];
};

void DecodeSegment(const PagedDecodeTask& task) {
  // Scales of the whole tensor are applied to scores and outputs, not to elements.
  WithRowCodec(task.problem->format, RowParams(),
               [&](const auto& codec) HWY_ATTR { SegmentDecoder(task, codec).Run(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DecodeSegment);

int64_t PagedDecodeScratch(const PagedAttentionProblem& p) {
  return DecodeScratch(p, nullptr).bytes;
}

void RunPagedDecode(const PagedDecodeTask& task) { HWY_DYNAMIC_DISPATCH(DecodeSegment)(task); }

}  // namespace pagefuse
#endif
