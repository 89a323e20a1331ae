#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert_hwy.cc"
#include <cstring>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Buffers of one thread, and the token whose cosines are in them.
struct QNormScratch {
  explicit QNormScratch(const QNormCall& call)
      : x(call.size), cos_sin(call.table.rotated), rounded(2 * call.size) {}
  std::vector<float> x, cos_sin;
  std::vector<uint8_t> rounded;
  int64_t token = -1;
};

HWY_INLINE void LoadRotated(const QNormCall& call, int64_t token, const uint8_t* from, bool norm,
                            QNormScratch& scratch) {
  if (scratch.token != token) {
    scratch.token = token;
    LoadCosSin(call.table, IndexAt(call.positions, token), scratch.cos_sin.data());
  }
  const size_t n = scratch.x.size();
  LoadRow(DataType::kBfloat16, from, n, scratch.x.data());
  if (norm) NormRowVectors(nullptr, call.epsilon, n, scratch.x.data());
  RotateRowVectors(call.layout, scratch.cos_sin.data(), scratch.cos_sin.data() + call.layout.pairs,
                   scratch.x.data());
}

// x * factor as e4m3fn, or x as bfloat16.
HWY_INLINE void StoreResult(const QNormCall& call, float factor, const std::vector<float>& x,
                            uint8_t* to) {
  if (call.format != QNormFormat::kFp8) {
    StoreRow(DataType::kBfloat16, x.data(), x.size(), to);
    return;
  }
  const hn::ScalableTag<float> df;
  const auto factors = hn::Set(df, factor);
  vec::TransformArray(x.data(), x.size(), reinterpret_cast<Float8E4M3FN*>(to),
                      [&](auto v) HWY_ATTR { return hn::Mul(v, factors); });
}

HWY_INLINE void InsertKv(const QNormCall& call, int64_t token, QNormScratch& scratch) {
  const RowAddress row = call.rows.AtSlot(call.slots[token], 0);
  LoadRotated(call, token, call.kv + token * 2 * call.size, false, scratch);
  if (call.format != QNormFormat::kFp8Ue8m0) {
    StoreResult(call, call.kv_factor, scratch.x, row.data);
    return;
  }
  const GroupedRowFormat format = call.RowFormat();
  const size_t n = scratch.x.size();
  StoreRow(DataType::kBfloat16, scratch.x.data(), n, scratch.rounded.data());
  LoadRow(DataType::kBfloat16, scratch.rounded.data(), n, scratch.x.data());
  vec::EncodeGroupedRowVectors(format, scratch.x.data(), scratch.rounded.data() + 2 * format.coded,
                               row);
}

// Items [begin, end): of each token its query heads, the padding, and last its key row.
void QNormItems(const QNormCall& call, int64_t begin, int64_t end) {
  QNormScratch scratch(call);
  const int64_t out_bytes = call.QueryOutBytes();
  for (int64_t item = begin; item < end; ++item) {
    const int64_t token = item / (call.padded_heads + 1);
    const int64_t head = item % (call.padded_heads + 1);
    if (head == call.padded_heads) {
      if (call.slots[token] >= 0) InsertKv(call, token, scratch);
      continue;
    }
    uint8_t* out = call.query_out + (token * call.padded_heads + head) * out_bytes;
    if (head >= call.heads) {
      std::memset(out, 0, out_bytes);
      continue;
    }
    LoadRotated(call, token, call.query + (token * call.heads + head) * 2 * call.size, true,
                scratch);
    StoreResult(call, call.query_factor, scratch.x, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(QNormItems);

void QNormRopeKvInsertHwy(const QNormCall& call) {
  ParallelFor(call.tokens * (call.padded_heads + 1), 4 * call.size,
              [&](int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(QNormItems)(call, begin, end);
              });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
