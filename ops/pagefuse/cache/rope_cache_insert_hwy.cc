#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/rope_cache_insert_hwy.cc"
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
  TokenScratch(size_t size, size_t pairs) : x(size), codec(size), cos(pairs), sin(pairs) {}
  std::vector<float> x, codec, cos, sin;
};

HWY_INLINE void RotateQuery(const RopeCall& call, int64_t token, TokenScratch& scratch) {
  const int64_t heads = call.query.dim(1);
  const size_t size = static_cast<size_t>(call.query.dim(2));
  const int64_t row_bytes = call.query.dim(2) * BitWidth(call.query.dtype) / 8;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t at = (token * heads + head) * row_bytes;
    LoadRow(call.query.dtype, call.query.as<const uint8_t>() + at, size, scratch.x.data());
    if (!call.q_norm.empty())
      NormRowVectors(call.q_norm.data(), call.epsilon, size, scratch.x.data());
    RotateRowVectors(call.layout, scratch.cos.data(), scratch.sin.data(), scratch.x.data());
    StoreRow(call.query.dtype, scratch.x.data(), size, call.query_out.as<uint8_t>() + at);
  }
}

HWY_INLINE void InsertKey(const RopeCall& call, int64_t token, TokenScratch& scratch) {
  const CacheSide& key = call.sides.key;
  const size_t size = static_cast<size_t>(key.head_size);
  for (int64_t head = 0; head < key.heads; ++head) {
    LoadRow(key.source_type, key.SourceRow(token, head), size, scratch.x.data());
    if (!call.k_norm.empty())
      NormRowVectors(call.k_norm.data(), call.epsilon, size, scratch.x.data());
    RotateRowVectors(call.layout, scratch.cos.data(), scratch.sin.data(), scratch.x.data());
    const RowAddress row = key.rows.AtSlot(call.slots[token], head);
    vec::WithRowCodec(key.format, key.Params(head), [&](const auto& codec) HWY_ATTR {
      codec.Store(scratch.x.data(), size, row, scratch.codec.data());
    });
  }
}

// Query and key of the tokens [begin, end).
void RotateTokens(const RopeCall& call, int64_t begin, int64_t end) {
  const size_t pairs = static_cast<size_t>(call.layout.pairs);
  TokenScratch scratch(static_cast<size_t>(call.query.dim(2)), pairs);
  const int64_t table_bytes = call.layout.pairs * BitWidth(call.cos.dtype) / 8;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t at = call.table_row(token) * table_bytes;
    LoadRow(call.cos.dtype, call.cos.as<const uint8_t>() + at, pairs, scratch.cos.data());
    LoadRow(call.sin.dtype, call.sin.as<const uint8_t>() + at, pairs, scratch.sin.data());
    RotateQuery(call, token, scratch);
    if (call.slots[token] >= 0) InsertKey(call, token, scratch);
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
  InsertRowsHwy(call.sides.value, writes);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
