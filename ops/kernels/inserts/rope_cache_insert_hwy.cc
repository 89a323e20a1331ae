// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/rope_cache_insert_hwy.cc"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/for_format-inl.h"
#include "pagefuse/ops/kernels/inserts/rope_cache_insert.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Buffers of one thread.
struct TokenScratch {
  TokenScratch(size_t size, size_t pairs, size_t heads)
      : x(size), codec(size), cos(pairs), sin(pairs), factors(heads) {}
  std::vector<float> x, codec, cos, sin;
  std::vector<float> factors;  // of the norm, by head
};

// The factors of a token's heads, if there is a norm.
template <typename T>
HWY_INLINE void FindFactors(const RopeCall& call, const RopeRow& row, const T* heads, int64_t count,
                            TokenScratch& scratch) {
  if (row.norm == RowNorm::kNone) return;
  NormFactors(heads, row.n, static_cast<size_t>(count), call.epsilon, scratch.factors.data());
}

template <typename T>
HWY_INLINE void RotateQuery(const RopeCall& call, const RopeRow& row, int64_t token,
                            TokenScratch& scratch) {
  const int64_t heads = call.heads, size = call.size;
  const T* from = reinterpret_cast<const T*>(call.query) + token * heads * size;
  T* to = reinterpret_cast<T*>(call.query_out) + token * heads * size;
  FindFactors(call, row, from, heads, scratch);
  for (int64_t head = 0; head < heads; ++head) {
    NormRotateRow(row, scratch.factors[head], from + head * size, to + head * size,
                  scratch.x.data());
  }
}

template <typename T>
HWY_INLINE void InsertKey(const RopeCall& call, const RopeRow& row, int64_t token,
                          TokenScratch& scratch) {
  const CacheSide& key = call.sides.key;
  const auto* from = reinterpret_cast<const T*>(key.SourceRow(token, 0));
  float* x = scratch.x.data();
  FindFactors(call, row, from, key.heads, scratch);
  for (int64_t head = 0; head < key.heads; ++head) {
    NormRotateRow(row, scratch.factors[head], from + head * static_cast<int64_t>(row.n), x, x);
    const RowAddress to = key.rows.AtSlot(call.slots[token], head);
    vec::ForFormat(key.format, [&](const auto& views) HWY_ATTR {
      views.Writer(key.format, key.Params(head)).Store(x, row.n, to, scratch.codec.data());
    });
  }
}

// Query and key of the tokens [begin, end), both of T.
template <typename T>
HWY_INLINE void RotateTokensOf(const RopeCall& call, int64_t begin, int64_t end) {
  const auto size = static_cast<size_t>(call.size);
  const auto pairs = static_cast<size_t>(call.layout.pairs);
  const int64_t heads = std::max(call.heads, call.sides.key.heads);
  TokenScratch scratch(size, pairs, static_cast<size_t>(heads));
  const auto row = [&](const std::vector<float>& weight) -> RopeRow {
    const RowNorm norm = weight.empty() ? RowNorm::kNone : RowNorm::kWeighted;
    return {call.layout, size, scratch.cos.data(), scratch.sin.data(), norm, weight.data()};
  };
  const RopeRow query = row(call.q_norm);
  const RopeRow key = row(call.k_norm);
  for (int64_t token = begin; token < end; ++token) {
    const int64_t at = call.TableOffset(token);
    LoadRow(call.table_type, call.cos + at, pairs, scratch.cos.data());
    LoadRow(call.table_type, call.sin + at, pairs, scratch.sin.data());
    RotateQuery<T>(call, query, token, scratch);
    if (call.slots[token] >= 0) InsertKey<T>(call, key, token, scratch);
  }
}

void RotateTokens(const RopeCall& call, int64_t begin, int64_t end) {
  WithRowType(call.type, [&]<typename T>() HWY_ATTR { RotateTokensOf<T>(call, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(RotateTokens);

void RopeCacheInsertHwy(const RopeCall& call) {
  const int64_t heads = call.heads + call.sides.key.heads;
  ForEachRow(call, call.tokens, heads * call.QueryRowBytes(), HWY_DYNAMIC_DISPATCH(RotateTokens));
  InsertRowsHwy({&call.sides.value}, call.sides.writes);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
