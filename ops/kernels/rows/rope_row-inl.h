// SPDX-License-Identifier: Apache-2.0
// RotateRow and NormRow in vectors, and rows of the float types. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ROWS_ROPE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ROWS_ROPE_ROW_INL_H_
#undef PAGEFUSE_KERNELS_ROWS_ROPE_ROW_INL_H_
#else
#define PAGEFUSE_KERNELS_ROWS_ROPE_ROW_INL_H_
#endif

#include <cmath>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/float_pairs-inl.h"
#include "pagefuse/ops/kernels/numeric/sums-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// f.operator()<T>() with the C++ type of float16, bfloat16 or float elements, as rows have them.
template <class F>
HWY_INLINE void WithRowType(DataType type, const F& f) {
  switch (type) {
    case DataType::kFloat16:
      return f.template operator()<Float16>();
    case DataType::kBfloat16:
      return f.template operator()<Bfloat16>();
    default:
      return f.template operator()<float>();
  }
}

// n elements of such a type as floats; no alignment needed.
HWY_INLINE void LoadRow(DataType type, const uint8_t* from, size_t n, float* HWY_RESTRICT to) {
  WithRowType(type, [&]<typename T>()
                        HWY_ATTR { vec::ConvertArray(reinterpret_cast<const T*>(from), n, to); });
}

// As RotateRow.
HWY_INLINE void RotateRowVectors(const RopeLayout& layout, const float* HWY_RESTRICT cos,
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
    const float a = first;
    const float b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
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

// Pairs of neighbours: from[2i] and from[2i + 1] of the lanes i as floats.
template <class DF, typename From, class V>
HWY_INLINE void LoadPairs(DF df, const From* HWY_RESTRICT from, V& first, V& second) {
  if constexpr (std::is_same_v<From, float>) {
    hn::LoadInterleaved2(df, from, first, second);
#if HWY_TARGET != HWY_SCALAR
  } else if constexpr (std::is_same_v<From, Bfloat16>) {
    vec::LoadBfloat16Pairs(df, from, first, second);
#endif
  } else {
    HWY_ALIGN float pairs[2 * hn::MaxLanes(DF())];
    vec::ConvertArray(from, 2 * hn::Lanes(df), pairs);
    hn::LoadInterleaved2(df, pairs, first, second);
  }
}

// Rounds such pairs to To and stores them.
template <class DF, typename To, class V>
HWY_INLINE void StorePairs(DF df, V first, V second, To* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<To, float>) {
    hn::StoreInterleaved2(first, second, df, to);
#if HWY_TARGET != HWY_SCALAR
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    const hn::Repartition<uint16_t, DF> d16;
    const auto pairs = hn::Or(vec::EncodeBfloat16Lanes(df, first),
                              hn::ShiftLeft<16>(vec::EncodeBfloat16Lanes(df, second)));
    hn::StoreU(hn::BitCast(d16, pairs), d16, reinterpret_cast<uint16_t*>(to));
#endif
  } else {
    HWY_ALIGN float pairs[2 * hn::MaxLanes(DF())];
    hn::StoreInterleaved2(first, second, df, pairs);
    vec::ConvertArray(pairs, 2 * hn::Lanes(df), to);
  }
}

// What a row is multiplied by before it is rotated.
enum class RowNorm {
  kNone,
  kFactor,    // its factor of NormFactors
  kWeighted,  // that, then weights
};

// What happens to a row of n elements on its way from one place to another.
struct RopeRow {
  RopeLayout layout;
  size_t n;
  const float* cos;
  const float* sin;
  RowNorm norm;
  const float* weight;  // of kWeighted

  // Rows of whole vectors, as are the firsts of their pairs.
  HWY_INLINE bool InVectors() const {
    const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
    const auto pairs = static_cast<size_t>(layout.pairs);
    const auto offset = static_cast<size_t>(layout.offset);
    return pairs % lanes == 0 && offset % lanes == 0 && n % lanes == 0;
  }
};

// NormRotateRow of rows InVectors(), in one go.
template <RowNorm norm, typename From, typename To>
HWY_INLINE void NormRotateVectors(const RopeRow& row, float norm_factor,
                                  const From* HWY_RESTRICT from, To* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  [[maybe_unused]] const auto factor = hn::Set(df, norm_factor);
  const auto get = [&](size_t i) HWY_ATTR {
    auto v = vec::LoadToFloat(df, from + i);
    if constexpr (norm != RowNorm::kNone) v = hn::Mul(v, factor);
    if constexpr (norm == RowNorm::kWeighted) v = hn::Mul(v, hn::LoadU(df, row.weight + i));
    return v;
  };
  const auto get_pairs = [&](size_t i, auto& a, auto& b) HWY_ATTR {
    LoadPairs(df, from + i, a, b);
    if constexpr (norm != RowNorm::kNone) {
      a = hn::Mul(a, factor);
      b = hn::Mul(b, factor);
    }
    if constexpr (norm == RowNorm::kWeighted) {
      auto weight_a = a;
      auto weight_b = b;
      hn::LoadInterleaved2(df, row.weight + i, weight_a, weight_b);
      a = hn::Mul(a, weight_a);
      b = hn::Mul(b, weight_b);
    }
  };
  const auto begin = static_cast<size_t>(row.layout.offset);
  const auto pairs = static_cast<size_t>(row.layout.pairs);
  for (size_t i = 0; i < begin; i += lanes) vec::StoreFromFloat(get(i), df, to + i);
  for (size_t i = 0; i < pairs; i += lanes) {
    const auto c = hn::LoadU(df, row.cos + i);
    const auto s = hn::LoadU(df, row.sin + i);
    auto a = c;
    auto b = c;
    if (row.layout.interleaved) {
      get_pairs(begin + 2 * i, a, b);
    } else {
      a = get(begin + i);
      b = get(begin + pairs + i);
    }
    const auto first = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
    const auto second = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
    if (row.layout.interleaved) {
      StorePairs(df, first, second, to + begin + 2 * i);
    } else {
      vec::StoreFromFloat(first, df, to + begin + i);
      vec::StoreFromFloat(second, df, to + begin + pairs + i);
    }
  }
  for (size_t i = begin + 2 * pairs; i < row.n; i += lanes) {
    vec::StoreFromFloat(get(i), df, to + i);
  }
}

// A row normed with its factor, rotated and rounded to To: the same bits as NormRow, but for the
// order of the factor's sum, and RotateRow on floats. Uses scratch[0, n), which may be `from` or
// `to`.
template <typename From, typename To>
HWY_INLINE void NormRotateRow(const RopeRow& row, float factor, const From* from, To* to,
                              float* scratch) {
  if (row.InVectors()) {
    switch (row.norm) {
      case RowNorm::kNone:
        return NormRotateVectors<RowNorm::kNone>(row, factor, from, to);
      case RowNorm::kFactor:
        return NormRotateVectors<RowNorm::kFactor>(row, factor, from, to);
      case RowNorm::kWeighted:
        return NormRotateVectors<RowNorm::kWeighted>(row, factor, from, to);
    }
  }
  if (static_cast<const void*>(from) != scratch) vec::ConvertArray(from, row.n, scratch);
  for (size_t i = 0; i < row.n; ++i) {
    if (row.norm != RowNorm::kNone) scratch[i] *= factor;
    if (row.norm == RowNorm::kWeighted) scratch[i] *= row.weight[i];
  }
  RotateRowVectors(row.layout, row.cos, row.sin, scratch);
  if (static_cast<void*>(to) != scratch) vec::ConvertArray(scratch, row.n, to);
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
