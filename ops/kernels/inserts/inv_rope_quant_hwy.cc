// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/inv_rope_quant_hwy.cc"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/group_encode-inl.h"
#include "pagefuse/ops/kernels/inserts/inv_rope_quant.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace vec = pagefuse::HWY_NAMESPACE;

template <typename From>
HWY_INLINE void QuantiseRowsOf(const InvRopeCall& call, int64_t begin, int64_t end) {
  std::vector<float> x(call.size);
  std::vector<float> cos_sin(call.table.rotated);
  std::vector<float> group_scales(call.size / call.group);
  int64_t loaded = -1;  // the token whose cosines are in cos_sin
  float* sines = cos_sin.data() + call.layout.pairs;
  const RopeRow rope = {call.layout, x.size(), cos_sin.data(), sines, RowNorm::kNone, nullptr};
  for (int64_t row = begin; row < end; ++row) {
    if (row / call.heads != loaded) {
      loaded = row / call.heads;
      LoadCosSin(call.table, call.positions[loaded], cos_sin.data());
      for (int64_t i = 0; i < call.layout.pairs; ++i) sines[i] = -sines[i];
    }
    const auto* from = reinterpret_cast<const From*>(call.Row(row));
    NormRotateRow(rope, 1.0f, from, x.data(), x.data());
    uint8_t* codes = call.codes + row * call.size;
    uint8_t* scales = call.scales + row * call.ScaleRowBytes();
    vec::EncodeGroupsVectors(call.format, x.data(),
                             {group_scales.size(), static_cast<size_t>(call.group)}, codes,
                             group_scales.data());
    for (const float scale : group_scales) {
      StoreGroupScale(call.format.scale, scale, scales);
      scales += call.format.ScaleBytes();
    }
  }
}

void QuantiseRows(const InvRopeCall& call, int64_t begin, int64_t end) {
  WithRowType(call.type, [&]<typename T>() HWY_ATTR { QuantiseRowsOf<T>(call, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(QuantiseRows);

void InvRopeQuantHwy(const InvRopeCall& call) {
  if (call.size == 0) return;
  ForEachRow(call, call.rows(), call.RowBytes() + call.size, HWY_DYNAMIC_DISPATCH(QuantiseRows));
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
