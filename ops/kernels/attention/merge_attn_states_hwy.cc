// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/attention/merge_attn_states_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/attention/merge_attn_states.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// One row. A part without weight may hold anything, so it is not multiplied.
template <typename From, typename To>
HWY_INLINE void MergeRow(const MergeCall& call, const MergeWeights& weights, int64_t row) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const size_t n = static_cast<size_t>(call.head_size);
  const From* prefix = reinterpret_cast<const From*>(call.prefix) + row * call.head_size;
  const From* suffix = reinterpret_cast<const From*>(call.suffix) + row * call.head_size;
  To* out = reinterpret_cast<To*>(call.output) + row * call.head_size;
  const auto wp = hn::Set(df, weights.prefix);
  const auto ws = hn::Set(df, weights.suffix);
  const auto inverse = hn::Set(df, call.inverse_scale);
  const auto join = [&](auto p, auto s) HWY_ATTR {
    const auto nothing = hn::Set(df, -0.0f);  // changes no sum
    const auto left = weights.prefix == 0 ? nothing : hn::Mul(p, wp);
    const auto right = weights.suffix == 0 ? nothing : hn::Mul(s, ws);
    return hn::Mul(hn::Add(left, right), inverse);
  };
  size_t d = 0;
  for (; d + lanes <= n; d += lanes) {
    const auto v = join(vec::LoadToFloat(df, prefix + d), vec::LoadToFloat(df, suffix + d));
    vec::StoreFromFloat(v, df, out + d);
  }
  if (d < n) {
    const auto v =
        join(vec::LoadToFloatN(df, prefix + d, n - d), vec::LoadToFloatN(df, suffix + d, n - d));
    vec::StoreFromFloatN(v, df, out + d, n - d);
  }
}

template <typename From>
HWY_INLINE void MergeTypedRow(const MergeCall& call, const MergeWeights& weights, int64_t row) {
  if (call.output_type == DataType::kFloat8E4M3FN) {
    MergeRow<From, Float8E4M3FN>(call, weights, row);
  } else {
    MergeRow<From, From>(call, weights, row);
  }
}

// The rows [begin, end) of tokens x heads.
void MergeRows(const MergeCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / call.heads;
    const int64_t head = row % call.heads;
    const MergeWeights weights = WeightsOf(call, token, head);
    if (call.type == DataType::kFloat16) {
      MergeTypedRow<Float16>(call, weights, row);
    } else if (call.type == DataType::kBfloat16) {
      MergeTypedRow<Bfloat16>(call, weights, row);
    } else {
      MergeTypedRow<float>(call, weights, row);
    }
    if (call.output_lse != nullptr) call.output_lse[head * call.tokens + token] = weights.lse;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(MergeRows);

void MergeAttnStatesHwy(const MergeCall& call) {
  const int64_t row_bytes = call.head_size * BitWidth(call.type) / 8;
  ParallelFor(call.tokens * call.heads, 3 * row_bytes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(MergeRows)(call, begin, end);
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
