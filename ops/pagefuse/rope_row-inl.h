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
#include "pagefuse/ops/numeric/sums-inl.h"
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

// 1 / sqrt(mean(x^2) + epsilon) of `count` rows of n elements, one behind the other, as NormRow
// has it. Rows together, as a root and a division take long.
template <typename T>
HWY_INLINE void NormFactors(const T* HWY_RESTRICT x, size_t n, size_t count, float epsilon,
                            float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  for (size_t r = 0; r < count; ++r) to[r] = vec::SumOfSquares(x + r * n, n);
  const auto size = static_cast<float>(n);
  size_t r = 0;
  for (; r + lanes <= count; r += lanes) {
    const auto mean = hn::Div(hn::LoadU(df, to + r), hn::Set(df, size));
    const auto root = hn::Sqrt(hn::Add(mean, hn::Set(df, epsilon)));
    hn::StoreU(hn::Div(hn::Set(df, 1.0f), root), df, to + r);
  }
  for (; r < count; ++r) to[r] = 1.0f / std::sqrt(to[r] / size + epsilon);
}

// As NormRow.
HWY_INLINE void NormRowVectors(const float* weight, float epsilon, size_t n,
                               float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  float inverse = 0;
  NormFactors(x, n, 1, epsilon, &inverse);
  const auto factor = hn::Set(df, inverse);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::Mul(hn::LoadU(df, x + i), factor);
    if (weight != nullptr) v = hn::Mul(v, hn::LoadU(df, weight + i));
    hn::StoreU(v, df, x + i);
  }
  for (; i < n; ++i) x[i] = x[i] * inverse * (weight == nullptr ? 1.0f : weight[i]);
}

// What happens to a row of n elements on its way from one place to another.
struct RopeRow {
  RopeLayout layout;
  size_t n;
  const float* cos;
  const float* sin;
  const float* weight;  // of the norm; null: no norm
  float epsilon;

  // Rows that NormRotateRow takes: halves of whole vectors.
  HWY_INLINE bool InVectors() const {
    const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
    const auto pairs = static_cast<size_t>(layout.pairs);
    const auto offset = static_cast<size_t>(layout.offset);
    return !layout.interleaved && pairs % lanes == 0 && offset % lanes == 0 && n % lanes == 0;
  }
};

// The row normed with its factor, rotated and converted in one go: the same bits as NormRowVectors
// and RotateRowVectors on floats. Needs InVectors().
template <bool norm, typename From, typename To>
HWY_INLINE void NormRotateRow(const RopeRow& row, float norm_factor, const From* from, To* to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  [[maybe_unused]] const auto factor = hn::Set(df, norm_factor);
  const auto get = [&](size_t i) HWY_ATTR {
    const auto v = vec::LoadToFloat(df, from + i);
    if constexpr (norm) return hn::Mul(hn::Mul(v, factor), hn::LoadU(df, row.weight + i));
    return v;
  };
  const auto begin = static_cast<size_t>(row.layout.offset);
  const auto pairs = static_cast<size_t>(row.layout.pairs);
  for (size_t i = 0; i < begin; i += lanes) vec::StoreFromFloat(get(i), df, to + i);
  for (size_t i = 0; i < pairs; i += lanes) {
    const auto a = get(begin + i);
    const auto b = get(begin + pairs + i);
    const auto c = hn::LoadU(df, row.cos + i);
    const auto s = hn::LoadU(df, row.sin + i);
    vec::StoreFromFloat(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), df, to + begin + i);
    vec::StoreFromFloat(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), df, to + begin + pairs + i);
  }
  for (size_t i = begin + 2 * pairs; i < row.n; i += lanes) {
    vec::StoreFromFloat(get(i), df, to + i);
  }
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
