#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/rope_cache_insert_hwy.cc"
#include <cmath>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/pagefuse/rope_cache_insert.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// n elements of float, float16 or bfloat16 as floats.
HWY_INLINE void LoadRow(DataType type, const uint8_t* from, size_t n, float* HWY_RESTRICT to) {
  if (type == DataType::kFloat16) {
    vec::ConvertArray(reinterpret_cast<const Float16*>(from), n, to);
  } else if (type == DataType::kBfloat16) {
    vec::ConvertArray(reinterpret_cast<const Bfloat16*>(from), n, to);
  } else {
    vec::ConvertArray(reinterpret_cast<const float*>(from), n, to);
  }
}

HWY_INLINE void StoreRow(DataType type, const float* HWY_RESTRICT from, size_t n, uint8_t* to) {
  if (type == DataType::kFloat16) {
    vec::ConvertArray(from, n, reinterpret_cast<Float16*>(to));
  } else if (type == DataType::kBfloat16) {
    vec::ConvertArray(from, n, reinterpret_cast<Bfloat16*>(to));
  } else {
    vec::ConvertArray(from, n, reinterpret_cast<float*>(to));
  }
}

HWY_INLINE void Norm(const float* HWY_RESTRICT weight, float epsilon, size_t n,
                     float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  auto sums = hn::Zero(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(df, x + i);
    sums = hn::MulAdd(v, v, sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(df, sums));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  const auto factor = hn::Set(df, inverse);
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto v = hn::Mul(hn::Mul(hn::LoadU(df, x + i), factor), hn::LoadU(df, weight + i));
    hn::StoreU(v, df, x + i);
  }
  for (; i < n; ++i) x[i] = x[i] * inverse * weight[i];
}

// The products are rounded before they are added, as an unfused graph does: a fused multiply-add
// would differ by many units where the two nearly cancel.
HWY_INLINE void RotatePair(float c, float s, float& first, float& second) {
  const float a = first;
  const float b = second;
  first = a * c - b * s;
  second = b * c + a * s;
}

HWY_INLINE void Rotate(const RopeLayout& layout, const float* HWY_RESTRICT cos,
                       const float* HWY_RESTRICT sin, float* HWY_RESTRICT row) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const size_t pairs = static_cast<size_t>(layout.pairs);
  float* x = row + layout.offset;
  size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    auto a = hn::Zero(df);
    auto b = hn::Zero(df);
    if (layout.interleaved) {
      hn::LoadInterleaved2(df, x + 2 * i, a, b);
    } else {
      a = hn::LoadU(df, x + i);
      b = hn::LoadU(df, x + pairs + i);
    }
    const auto c = hn::LoadU(df, cos + i);
    const auto s = hn::LoadU(df, sin + i);
    const auto first = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
    const auto second = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
    if (layout.interleaved) {
      hn::StoreInterleaved2(first, second, df, x + 2 * i);
    } else {
      hn::StoreU(first, df, x + i);
      hn::StoreU(second, df, x + pairs + i);
    }
  }
  for (; i < pairs; ++i) {
    float& first = layout.interleaved ? x[2 * i] : x[i];
    float& second = layout.interleaved ? x[2 * i + 1] : x[pairs + i];
    RotatePair(cos[i], sin[i], first, second);
  }
}

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
    if (!call.q_norm.empty()) Norm(call.q_norm.data(), call.epsilon, size, scratch.x.data());
    Rotate(call.layout, scratch.cos.data(), scratch.sin.data(), scratch.x.data());
    StoreRow(call.query.dtype, scratch.x.data(), size, call.query_out.as<uint8_t>() + at);
  }
}

HWY_INLINE void InsertKey(const RopeCall& call, int64_t token, TokenScratch& scratch) {
  const CacheSide& key = call.sides.key;
  const size_t size = static_cast<size_t>(key.head_size);
  for (int64_t head = 0; head < key.heads; ++head) {
    LoadRow(key.source_type, key.SourceRow(token, head), size, scratch.x.data());
    if (!call.k_norm.empty()) Norm(call.k_norm.data(), call.epsilon, size, scratch.x.data());
    Rotate(call.layout, scratch.cos.data(), scratch.sin.data(), scratch.x.data());
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
