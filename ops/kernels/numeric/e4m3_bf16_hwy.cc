// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/numeric/e4m3_bf16_hwy.cc"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/e4m3_bf16.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::CappedTag<uint8_t, kBf16RowMultiple>;
using V8 = hn::Vec<D8>;

// The bytes of the bfloat16 of each code. A code is s eeee mmm, its bfloat16 s EEEEEEEE mmm0000
// with E = e + 120, so that
//   the high byte is s, then 0111100 + the upper three bits of eeee,
//   the low byte is the last bit of eeee, then mmm0000;
// but where those three bits are 0 the code may be subnormal, m * 2^-9: tables give both bytes.
HWY_INLINE void Bf16Bytes(V8 codes, V8& low, V8& high) {
  const D8 d;
  const hn::Repartition<uint16_t, D8> pairs;
  HWY_ALIGN static constexpr uint8_t kHigh[16] = {0x3C, 0x3D, 0x3E, 0x3F, 0x40, 0x41, 0x42, 0x43,
                                                  0xBC, 0xBD, 0xBE, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3};
  HWY_ALIGN static constexpr uint8_t kSmallLow[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x20,
                                                      0x40, 0x60, 0x80, 0x90, 0xA0, 0xB0,
                                                      0xC0, 0xD0, 0xE0, 0xF0};
  HWY_ALIGN static constexpr uint8_t kSmallHigh[16] = {0x00, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C,
                                                       0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C,
                                                       0x3C, 0x3C, 0x3C, 0x3C};
  const auto nibble = hn::Set(d, 0x0F);
  const auto lower = hn::And(codes, nibble);
  const auto upper = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(pairs, codes))), nibble);
  const auto small = hn::Eq(hn::And(codes, hn::Set(d, 0x70)), hn::Zero(d));
  const auto sign = hn::And(codes, hn::Set(d, 0x80));
  const auto usual_low = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(pairs, lower)));
  const auto usual_high = hn::TableLookupBytes(hn::LoadDup128(d, kHigh), upper);
  const auto small_low = hn::TableLookupBytes(hn::LoadDup128(d, kSmallLow), lower);
  const auto small_high = hn::TableLookupBytes(hn::LoadDup128(d, kSmallHigh), lower);
  low = hn::IfThenElse(small, small_low, usual_low);
  high = hn::IfThenElse(small, hn::Or(small_high, sign), usual_high);
}

// 64 codes to 64 words.
HWY_INLINE void Convert64(const uint8_t* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT words) {
  const D8 d;
  const int64_t lanes = hn::Lanes(d);
  auto* bytes = reinterpret_cast<uint8_t*>(words);
  for (int64_t i = 0; i < kBf16RowMultiple; i += lanes) {
    V8 low;
    V8 high;
    Bf16Bytes(hn::LoadU(d, codes + i), low, high);
    hn::StoreU(hn::InterleaveLower(d, low, high), d, bytes + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, bytes + 2 * i + lanes);
  }
}

void ConvertRows(const E4M3Rows& rows, uint16_t* words) {
  const int64_t whole = rows.size / kBf16RowMultiple * kBf16RowMultiple;
  const int64_t rest = rows.size - whole;
  for (int64_t row = 0; row < rows.rows; ++row) {
    const uint8_t* codes = rows.codes + row * rows.stride;
    for (int64_t i = 0; i < whole; i += kBf16RowMultiple) {
      Convert64(codes + i, words);
      words += kBf16RowMultiple;
    }
    if (rest == 0) continue;
    uint8_t padded[kBf16RowMultiple] = {};
    std::copy_n(codes + whole, rest, padded);
    Convert64(padded, words);
    words += kBf16RowMultiple;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(ConvertRows);

void E4M3ToBf16InAnyOrder(const E4M3Rows& rows, uint16_t* words) {
  HWY_DYNAMIC_DISPATCH(ConvertRows)(rows, words);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
