// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/indexer/combine_topk_window_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/indexer/combine_topk_window.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::ScalableTag<int32_t>;

// Writes make(i), make(i + 1), ... to out[0, count): whole vectors, then one element at a time.
template <class Vector, class Scalar>
HWY_INLINE void Fill(int32_t* HWY_RESTRICT out, int64_t count, const Vector& vector,
                     const Scalar& scalar) {
  const DI di;
  const int64_t lanes = hn::Lanes(di);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(vector(i), di, out + i);
  for (; i < count; ++i) out[i] = scalar(i);
}

void CombineVectors(const CombinedRow& row, int32_t* HWY_RESTRICT combined) {
  const DI di;
  // Every sum fits int32 although first_row may not where nothing is compressed.
  const auto low = [](int64_t value) { return static_cast<int32_t>(value); };
  const auto first = hn::Set(di, low(row.first_row));
  Fill(
      combined, row.compressed,
      [&](int64_t i) HWY_ATTR { return hn::Add(hn::LoadU(di, row.topk + i), first); },
      [&](int64_t i) { return low(row.topk[i] + row.first_row); });
  const auto step = hn::Iota(di, 0);
  Fill(
      combined + row.compressed, row.window,
      [&](int64_t i) HWY_ATTR { return hn::Add(hn::Set(di, low(row.first_window_row + i)), step); },
      [&](int64_t i) { return low(row.first_window_row + i); });
  const int64_t used = row.compressed + row.window;
  Fill(
      combined + used, row.width - used, [&](int64_t) HWY_ATTR { return hn::Set(di, -1); },
      [](int64_t) { return -1; });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(CombineVectors);

void CombineRowHwy(const CombinedRow& row, int32_t* combined) {
  HWY_DYNAMIC_DISPATCH(CombineVectors)(row, combined);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
