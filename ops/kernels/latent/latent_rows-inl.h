// SPDX-License-Identifier: Apache-2.0
// Rows of latent caches in vectors, whatever their format. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_LATENT_LATENT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LATENT_LATENT_ROWS_INL_H_
#undef PAGEFUSE_KERNELS_LATENT_LATENT_ROWS_INL_H_
#else
#define PAGEFUSE_KERNELS_LATENT_LATENT_ROWS_INL_H_
#endif

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(codec) with a codec that gives the elements of cache rows as attention reads them.
template <class F>
HWY_INLINE void WithLatentCodec(const SparseMlaProblem& p, const F& f) {
  if (!p.plain) return WithGroupedCodec(p.grouped, f);
  if (p.cache_type == DataType::kFloat) return f(PlainCodec<float>());
  if (p.cache_type == DataType::kFloat16) return f(PlainCodec<Float16>());
  return f(PlainCodec<Bfloat16>());
}

// Elements [d, d + Lanes) of a row of `size`; zeros behind its end.
template <class DF, class Codec>
HWY_INLINE hn::Vec<DF> LoadLatent(DF df, const Codec& codec, const typename Codec::Row& row,
                                  size_t d, size_t size) {
  const size_t lanes = hn::Lanes(df);
  if (d + lanes <= size) return codec.Load(df, row, d);
  if (d < size) return codec.LoadN(df, row, d, size - d);
  return hn::Zero(df);
}

// True if all elements of a row are finite.
template <class Codec>
HWY_INLINE bool IsFiniteLatent(const Codec& codec, RowAddress address, size_t size) {
  const hn::ScalableTag<float> df;
  const auto row = codec.Open(address);
  auto zero = hn::Zero(df);  // stays 0 while elements are finite
  for (size_t d = 0; d < size; d += hn::Lanes(df)) {
    zero = hn::MulAdd(LoadLatent(df, codec, row, d, size), hn::Zero(df), zero);
  }
  return hn::AllTrue(df, hn::Eq(zero, hn::Zero(df)));
}

// True if the rows of a task that not all of its tokens see are finite: a weight of 0 then takes
// them out of the sums.
HWY_INLINE bool PartlySeenRowsAreFinite(const SparseMlaTask& task) {
  bool finite = true;
  WithLatentCodec(*task.problem, [&](const auto& codec) HWY_ATTR {
    const auto size = static_cast<size_t>(task.problem->head_size);
    for (const RowAddress& row : task.rows.subspan(static_cast<size_t>(task.visible[0]))) {
      finite = finite && IsFiniteLatent(codec, row, size);
    }
  });
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
