// SPDX-License-Identifier: Apache-2.0
// Rows of W as floats.
#include <algorithm>

#include "pagefuse/ops/kernels/linalg/nbits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DFull = hn::ScalableTag<float>;

// One block as floats; codes of less than a byte begin with one.
template <int kBits>
void DecodeCodes(const uint8_t* codes, int64_t count, float scale, float zero, float* to) {
  const DFull d;
  const hn::Rebind<uint8_t, DFull> d8;
  const hn::Rebind<int32_t, DFull> d32;
  const int64_t lanes = hn::Lanes(d);
  const auto scales = hn::Set(d, scale);
  const auto zeros = hn::Set(d, zero);
  const auto value = [&](auto code) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::ConvertTo(d, code), zeros), scales);
  };
  constexpr int64_t kPerByte = 8 / kBits;
  int64_t i = 0;
  for (; i + lanes * kPerByte <= count; i += lanes * kPerByte) {
    const auto code = hn::PromoteTo(d32, hn::LoadU(d8, codes + i / kPerByte));
    if constexpr (kBits == 4) {
      hn::StoreInterleaved2(value(hn::And(code, hn::Set(d32, 15))), value(hn::ShiftRight<4>(code)),
                            d, to + i);
    } else if constexpr (kBits == 2) {
      const auto low = hn::Set(d32, 3);
      hn::StoreInterleaved4(value(hn::And(code, low)), value(hn::And(hn::ShiftRight<2>(code), low)),
                            value(hn::And(hn::ShiftRight<4>(code), low)),
                            value(hn::ShiftRight<6>(code)), d, to + i);
    } else {
      hn::StoreU(value(code), d, to + i);
    }
  }
  for (; i < count; ++i) {
    const int code = codes[i / kPerByte] >> (i % kPerByte * kBits) & ((1 << kBits) - 1);
    to[i] = (static_cast<float>(code) - zero) * scale;
  }
}

void DecodeBlocks(const NBitsWeight& w, int64_t row, float* to) {
  const uint8_t* codes = w.codes + row * w.row_bytes;
  const float* scales = w.scales + row * w.blocks();
  for (int64_t b = 0; b < w.blocks(); ++b) {
    const int64_t begin = b * w.block;
    const int64_t count = std::min(w.block, w.k - begin);
    const uint8_t* block = codes + begin * w.bits / 8;
    if (w.bits == 2) {
      DecodeCodes<2>(block, count, scales[b], w.Zero(row, b), to + begin);
    } else if (w.bits == 4) {
      DecodeCodes<4>(block, count, scales[b], w.Zero(row, b), to + begin);
    } else {
      DecodeCodes<8>(block, count, scales[b], w.Zero(row, b), to + begin);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DecodeBlocks);

void DecodeNBitsRow(const NBitsWeight& w, int64_t row, float* to) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(w, row, to);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
