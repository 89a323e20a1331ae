// RotateRow and NormRow in vectors, and rows of the float types. Include inside a file that
// hwy/foreach_target.h recompiles, and list that file among those without contraction of
// multiply-adds in ops/CMakeLists.txt.
#if defined(PAGEFUSE_OPS_PAGEFUSE_ROPE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_PAGEFUSE_ROPE_ROW_INL_H_
#undef PAGEFUSE_OPS_PAGEFUSE_ROPE_ROW_INL_H_
#else
#define PAGEFUSE_OPS_PAGEFUSE_ROPE_ROW_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"

#include "pagefuse/ir/data_type.h"
#include "pagefuse/ops/numeric/convert-inl.h"
#include "pagefuse/ops/pagefuse/rope_row.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// n elements of float, float16 or bfloat16 as floats; no alignment needed.
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

// As RotateRow.
HWY_INLINE void RotateRowVectors(const RopeLayout& layout, const float* HWY_RESTRICT cos,
                                 const float* HWY_RESTRICT sin, float* HWY_RESTRICT row,
                                 RopeDirection direction = RopeDirection::kForward) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const size_t pairs = static_cast<size_t>(layout.pairs);
  const float sign = direction == RopeDirection::kInverse ? -1.0f : 1.0f;
  const auto signs = hn::Set(df, sign);
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
    const auto s = hn::Mul(signs, hn::LoadU(df, sin + i));
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
    const float a = first;
    const float b = second;
    const float s = sign * sin[i];
    first = a * cos[i] - b * s;
    second = b * cos[i] + a * s;
  }
}

// As NormRow, but for the order of the sum.
HWY_INLINE void NormRowVectors(const float* weight, float epsilon, size_t n,
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
    auto v = hn::Mul(hn::LoadU(df, x + i), factor);
    if (weight != nullptr) v = hn::Mul(v, hn::LoadU(df, weight + i));
    hn::StoreU(v, df, x + i);
  }
  for (; i < n; ++i) x[i] = x[i] * inverse * (weight == nullptr ? 1.0f : weight[i]);
}

// Row `position` of the table as floats: R/2 cosines, then R/2 sines.
HWY_INLINE void LoadCosSin(const CosSinTable& table, int64_t position,
                           float* HWY_RESTRICT cos_sin) {
  LoadRow(table.type, table.Row(position), static_cast<size_t>(table.rotated), cos_sin);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#endif  // toggle
