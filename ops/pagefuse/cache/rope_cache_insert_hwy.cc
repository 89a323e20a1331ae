#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/rope_cache_insert_hwy.cc"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

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

// The factors of a token's heads, where RotateTo needs them.
template <typename T>
HWY_INLINE void FindFactors(const RopeRow& row, const T* heads, int64_t count,
                            TokenScratch& scratch) {
  if (row.weight == nullptr || !row.InVectors()) return;
  NormFactors(heads, row.n, static_cast<size_t>(count), row.epsilon, scratch.factors.data());
}

// The row of T of a head normed and rotated.
template <typename T, typename To>
HWY_INLINE void RotateTo(const RopeRow& row, int64_t head, const T* from, TokenScratch& scratch,
                         To* to) {
  if (row.InVectors()) {
    return row.weight == nullptr ? NormRotateRow<false>(row, 1.0f, from, to)
                                 : NormRotateRow<true>(row, scratch.factors[head], from, to);
  }
  float* x = scratch.x.data();
  vec::ConvertArray(from, row.n, x);
  if (row.weight != nullptr) NormRowVectors(row.weight, row.epsilon, row.n, x);
  RotateRowVectors(row.layout, row.cos, row.sin, x);
  if (static_cast<void*>(to) != x) vec::ConvertArray(x, row.n, to);
}

template <typename T>
HWY_INLINE void RotateQuery(const RopeCall& call, const RopeRow& row, int64_t token,
                            TokenScratch& scratch) {
  const int64_t heads = call.query.dim(1), size = call.query.dim(2);
  const T* from = call.query.as<const T>() + token * heads * size;
  T* to = call.query_out.as<T>() + token * heads * size;
  FindFactors(row, from, heads, scratch);
  for (int64_t head = 0; head < heads; ++head) {
    RotateTo(row, head, from + head * size, scratch, to + head * size);
  }
}

template <typename T>
HWY_INLINE void InsertKey(const RopeCall& call, const RopeRow& row, int64_t token,
                          TokenScratch& scratch) {
  const CacheSide& key = call.sides.key;
  const auto* from = reinterpret_cast<const T*>(key.SourceRow(token, 0));
  float* x = scratch.x.data();
  FindFactors(row, from, key.heads, scratch);
  for (int64_t head = 0; head < key.heads; ++head) {
    RotateTo(row, head, from + head * static_cast<int64_t>(row.n), scratch, x);
    const RowAddress to = key.rows.AtSlot(call.slots[token], head);
    vec::WithRowCodec(key.format, key.Params(head), [&](const auto& codec) HWY_ATTR {
      codec.Store(x, row.n, to, scratch.codec.data());
    });
  }
}

// Query and key of the tokens [begin, end), both of T.
template <typename T>
HWY_INLINE void RotateTokensOf(const RopeCall& call, int64_t begin, int64_t end) {
  const auto size = static_cast<size_t>(call.query.dim(2));
  const auto pairs = static_cast<size_t>(call.layout.pairs);
  const int64_t heads = std::max(call.query.dim(1), call.sides.key.heads);
  TokenScratch scratch(size, pairs, static_cast<size_t>(heads));
  const auto weight = [](const std::vector<float>& norm) {
    return norm.empty() ? nullptr : norm.data();
  };
  const RopeRow query = {call.layout,         size,        scratch.cos.data(), scratch.sin.data(),
                         weight(call.q_norm), call.epsilon};
  RopeRow key = query;
  key.weight = weight(call.k_norm);
  const int64_t table_bytes = call.layout.pairs * BitWidth(call.cos.dtype) / 8;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t at = call.table_row(token) * table_bytes;
    LoadRow(call.cos.dtype, call.cos.as<const uint8_t>() + at, pairs, scratch.cos.data());
    LoadRow(call.sin.dtype, call.sin.as<const uint8_t>() + at, pairs, scratch.sin.data());
    RotateQuery<T>(call, query, token, scratch);
    if (call.slots[token] >= 0) InsertKey<T>(call, key, token, scratch);
  }
}

void RotateTokens(const RopeCall& call, int64_t begin, int64_t end) {
  switch (call.query.dtype) {
    case DataType::kFloat16:
      return RotateTokensOf<Float16>(call, begin, end);
    case DataType::kBfloat16:
      return RotateTokensOf<Bfloat16>(call, begin, end);
    default:
      return RotateTokensOf<float>(call, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(RotateTokens);

void RopeCacheInsertHwy(const RopeCall& call) {
  const int64_t heads = call.query.dim(1) + call.sides.key.heads;
  const int64_t token_bytes = heads * call.query.dim(2) * BitWidth(call.query.dtype) / 8;
  ParallelFor(call.tokens(), token_bytes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RotateTokens)(call, begin, end);
  });
  std::vector<SlotWrite> writes;
  for (int64_t t = 0; t < call.tokens(); ++t) {
    if (call.slots[t] >= 0) writes.push_back({t, call.slots[t]});
  }
  InsertRowsHwy({&call.sides.value}, writes);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
