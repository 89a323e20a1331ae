// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/indexer/slot_lookup_hwy.cc"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/indexer/slot_lookup.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::ScalableTag<int32_t>;
using DU = hn::RebindToUnsigned<DI>;

// v / divisor in each lane, 0 <= v < 2^31: even and odd lanes through 64-bit products.
HWY_INLINE hn::Vec<DI> DivideLanes(hn::Vec<DI> v, const BlockDivider& divider) {
  const DI di;
  const DU du;
  const hn::RepartitionToWide<DU> du64;
  const auto values = hn::BitCast(du, v);
  const auto multiplier = hn::Set(du, divider.multiplier);
  const auto odd_values = hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(du64, values)));
  const auto even = hn::ShiftRightSame(hn::MulEven(values, multiplier), divider.shift);
  const auto odd = hn::ShiftRightSame(hn::MulEven(odd_values, multiplier), divider.shift);
  return hn::BitCast(di, hn::Or(even, hn::ShiftLeft<32>(odd)));
}

// Slots of one vector of indices; *valid tells which lanes are no -1.
HWY_INLINE hn::Vec<DI> SlotsOf(const SlotRow& row, const BlockDivider& divider, hn::Vec<DI> indices,
                               hn::Mask<DI>* valid) {
  const DI di;
  const auto zero = hn::Zero(di);
  const auto last = hn::Set(di, static_cast<int32_t>(row.limit - 1));
  *valid = hn::Not(hn::Or(hn::Lt(indices, zero), hn::Gt(indices, last)));
  auto slots = hn::Add(indices, hn::Set(di, row.start));
  if (row.table != nullptr) {
    const auto safe = hn::IfThenElseZero(*valid, indices);
    const auto block_size = hn::Set(di, static_cast<int32_t>(divider.divisor));
    const auto columns = DivideLanes(safe, divider);
    const auto offsets = hn::Sub(safe, hn::Mul(columns, block_size));
    const auto blocks = hn::GatherIndex(di, row.table, columns);
    slots = hn::Add(hn::Mul(blocks, block_size), offsets);
  }
  return hn::IfThenElse(*valid, slots, hn::Set(di, -1));
}

int32_t LookUpRow(const SlotRow& row, const BlockDivider& divider) {
  const DI di;
  const int64_t lanes = hn::Lanes(di);
  int64_t valid = 0;
  // Without a table there may be nothing that lane 0 of a gather could read.
  if (row.limit <= 0) {
    std::fill_n(row.slots, row.count, -1);
    return 0;
  }
  hn::Mask<DI> mask;
  int64_t i = 0;
  for (; i + lanes <= row.count; i += lanes) {
    const auto slots = SlotsOf(row, divider, hn::LoadU(di, row.indices + i), &mask);
    hn::StoreU(slots, di, row.slots + i);
    valid += hn::CountTrue(di, mask);
  }
  if (i < row.count) {
    HWY_ALIGN int32_t buffer[hn::MaxLanes(di)];
    std::fill_n(buffer, lanes, -1);
    std::copy_n(row.indices + i, row.count - i, buffer);
    hn::Store(SlotsOf(row, divider, hn::Load(di, buffer), &mask), di, buffer);
    std::copy_n(buffer, row.count - i, row.slots + i);
    valid += hn::CountTrue(di, mask);
  }
  return static_cast<int32_t>(valid);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(LookUpRow);

int32_t LookUpSlotsHwy(const SlotRow& row, const BlockDivider& divider) {
  return HWY_DYNAMIC_DISPATCH(LookUpRow)(row, divider);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
