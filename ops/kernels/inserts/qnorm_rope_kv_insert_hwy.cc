// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/qnorm_rope_kv_insert_hwy.cc"
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/inserts/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Buffers of one thread, and the token whose cosines are in them.
struct QNormScratch {
  explicit QNormScratch(const QNormCall& call)
      : x(call.size), cos_sin(call.table.rotated), rounded(call.size) {}
  std::vector<float> x, cos_sin;
  std::vector<Bfloat16> rounded;
  int64_t token = -1;
};

// A row of the token, normed if that is asked for, and rotated.
template <typename From, typename To>
HWY_INLINE void RotateTo(const QNormCall& call, int64_t token, const From* from, RowNorm norm,
                         QNormScratch& scratch, To* to) {
  const float* cos = scratch.cos_sin.data();
  if (scratch.token != token) {
    scratch.token = token;
    LoadCosSin(call.table, call.positions[token], scratch.cos_sin.data());
  }
  const size_t n = scratch.x.size();
  float factor = 1.0f;
  if (norm != RowNorm::kNone) NormFactors(from, n, 1, call.epsilon, &factor);
  const RopeRow row = {call.layout, n, cos, cos + call.layout.pairs, norm, nullptr};
  NormRotateRow(row, factor, from, to, scratch.x.data());
}

// Such a row as e4m3fn of its product with a factor.
template <typename From>
HWY_INLINE void RotateToCodes(const QNormCall& call, int64_t token, const From* from, RowNorm norm,
                              float factor, QNormScratch& scratch, uint8_t* to) {
  const hn::ScalableTag<float> df;
  const auto factors = hn::Set(df, factor);
  RotateTo(call, token, from, norm, scratch, scratch.x.data());
  vec::TransformArray(scratch.x.data(), scratch.x.size(), reinterpret_cast<Float8E4M3FN*>(to),
                      [&](auto v) HWY_ATTR { return hn::Mul(v, factors); });
}

template <typename From>
HWY_INLINE void InsertKv(const QNormCall& call, int64_t token, QNormScratch& scratch) {
  const RowAddress row = call.rows.AtSlot(call.slots[token], 0);
  const auto* from = reinterpret_cast<const From*>(call.kv) + token * call.size;
  if (call.format == QNormFormat::kFp8) {
    return RotateToCodes(call, token, from, RowNorm::kNone, call.kv_factor, scratch, row.data);
  }
  if (call.format == QNormFormat::kPlain) {
    return WithRowType(call.row_type, [&]<typename To>() HWY_ATTR {
      RotateTo(call, token, from, RowNorm::kNone, scratch, reinterpret_cast<To*>(row.data));
    });
  }
  const GroupedRowFormat& format = call.row_format;
  RotateTo(call, token, from, RowNorm::kNone, scratch, scratch.rounded.data());
  vec::EncodeGroupedRowVectors(format, scratch.rounded.data(),
                               scratch.rounded.data() + format.coded, row);
}

// Items [begin, end): of each token its query heads, the padding, and last its key row.
template <typename T>
HWY_INLINE void QNormItemsOf(const QNormCall& call, int64_t begin, int64_t end) {
  QNormScratch scratch(call);
  const int64_t out_bytes = call.QueryOutBytes();
  for (int64_t item = begin; item < end; ++item) {
    const int64_t token = item / (call.padded_heads + 1);
    const int64_t head = item % (call.padded_heads + 1);
    if (head == call.padded_heads) {
      if (call.slots[token] >= 0) InsertKv<T>(call, token, scratch);
      continue;
    }
    uint8_t* out = call.query_out + (token * call.padded_heads + head) * out_bytes;
    if (head >= call.heads) {
      std::memset(out, 0, out_bytes);
      continue;
    }
    const auto* from = reinterpret_cast<const T*>(call.Row(token * call.heads + head));
    if (call.format == QNormFormat::kFp8) {
      RotateToCodes(call, token, from, RowNorm::kFactor, call.query_factor, scratch, out);
    } else {
      RotateTo(call, token, from, RowNorm::kFactor, scratch, reinterpret_cast<T*>(out));
    }
  }
}

void QNormItems(const QNormCall& call, int64_t begin, int64_t end) {
  WithRowType(call.type, [&]<typename T>() HWY_ATTR { QNormItemsOf<T>(call, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(QNormItems);

void QNormRopeKvInsertHwy(const QNormCall& call) {
  if (call.size == 0) return;
  ForEachRow(call, call.tokens * (call.padded_heads + 1), 4 * call.size,
             HWY_DYNAMIC_DISPATCH(QNormItems));
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
