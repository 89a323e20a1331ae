// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "pagefuse/ops/kernels/linalg/lanes_bf16.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/lanes_bf16_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, NBitsLanes::kLanes>;
using D32 = hn::RebindToSigned<DF>;
using DU32 = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;

constexpr int64_t kRow = NBitsLanes::kLanes;  // words of 32 bits from a pair of rows to the next

// What makes numbers of codes: code * scale + start.
struct Factors {
  VF scale, start;
};

HWY_INLINE Factors FactorsAt(const NBitsLanes& w, int64_t at) {
  const DF df;
  const VF scale =
      w.half_scales != nullptr ? LoadToFloat(df, w.half_scales + at) : hn::LoadU(df, w.scales + at);
  VF zero = hn::Set(df, w.bits == 4 ? 8.0f : 128.0f);
  if (w.zeros != nullptr) zero = hn::LoadU(df, w.zeros + at);
  if (w.zero_codes != nullptr) {
    const hn::Rebind<uint8_t, DF> d8;
    zero = hn::ConvertTo(df, hn::PromoteTo(D32(), hn::LoadU(d8, w.zero_codes + at)));
  }
  return {scale, hn::Neg(hn::Mul(zero, scale))};  // exact at the centre, a power of two
}

// The bits of code kIndex of each lane's word, ready to be rounded by leaving the lower half out.
template <int kBits, int kIndex>
HWY_INLINE VU32 HalfUp(VU32 word, const Factors& by) {
  const VU32 code =
      hn::And(hn::ShiftRight<kIndex * kBits>(word), hn::Set(DU32(), (1U << kBits) - 1));
  const VF number = hn::MulAdd(hn::ConvertTo(DF(), hn::BitCast(D32(), code)), by.scale, by.start);
  return hn::Add(hn::BitCast(DU32(), number), hn::Set(DU32(), 0x8000U));
}

// Codes kIndex and kIndex + 1 of each lane's word beside each other, and those behind them in the
// next rows.
template <int kBits, int kIndex = 0>
HWY_INLINE void StorePairs(VU32 word, const Factors& by, uint32_t* to) {
  if constexpr (kIndex < 32 / kBits) {
    const VU32 low = hn::ShiftRight<16>(HalfUp<kBits, kIndex>(word, by));
    const VU32 high = HalfUp<kBits, kIndex + 1>(word, by);
    hn::StoreU(hn::Or(low, hn::And(high, hn::Set(DU32(), 0xFFFF0000U))), DU32(),
               to + kIndex / 2 * kRow);
    StorePairs<kBits, kIndex + 2>(word, by, to);
  }
}

template <int kBits>
void Decode(const NBitsLanes& w, int64_t group, int64_t first, int64_t count, uint16_t* to) {
  constexpr int64_t kDepth = PackedBf16::kBlockRows, kWords = kBits;  // of 32 codes
  const int shift = std::countr_zero(static_cast<uint64_t>(w.block / kDepth));
  for (int64_t b = first; b < first + count; ++b, to += PackedBf16::kBlockWords) {
    const uint32_t* words = w.codes + NBitsLanes::At(group, w.words(), b * kWords);
    for (int64_t lane = 0; lane < NBitsLanes::kLanes; lane += hn::MaxLanes(DF())) {
      const Factors by = FactorsAt(w, NBitsLanes::At(group, w.blocks(), b >> shift) + lane);
      auto* out = reinterpret_cast<uint32_t*>(to) + lane;
      for (int64_t word = 0; word < kWords; ++word) {
        StorePairs<kBits>(hn::LoadU(DU32(), words + word * NBitsLanes::kLanes + lane), by,
                          out + word * (16 / kBits) * kRow);
      }
    }
  }
}

void DecodeAny(const NBitsLanes& w, int64_t group, int64_t first, int64_t count, uint16_t* to) {
  (w.bits == 4 ? Decode<4> : Decode<8>)(w, group, first, count, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DecodeAny);

void DecodeToBf16Blocks(const NBitsLanes& w, int64_t group, int64_t first, int64_t count,
                        uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(DecodeAny)(w, group, first, count, to);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
