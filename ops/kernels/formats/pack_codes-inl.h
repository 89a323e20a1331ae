// SPDX-License-Identifier: Apache-2.0
// Codes narrower than a byte, made and packed (numeric/packing.h) a few vectors at a time. Include
// inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_PACK_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_PACK_CODES_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_PACK_CODES_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_PACK_CODES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/lane_bytes-inl.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Packs the bytes `codes`, below 2^bits, into Lanes(d8) * bits / 8 bytes.
template <int bits, class D8, class V8>
HWY_INLINE void StorePacked([[maybe_unused]] D8 d8, V8 codes, uint8_t* HWY_RESTRICT to) {
  static_assert(bits == 3 || bits == 4);
  if constexpr (bits == 4) {
    const hn::Repartition<uint16_t, D8> d16;
    const hn::Rebind<uint8_t, decltype(d16)> half;
    const auto pairs = hn::BitCast(d16, codes);
    const auto packed =
        hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(hn::RebindToSigned<decltype(d16)>(), packed)), half,
               to);
  } else {
    // Neighbours are joined in wider and wider fields: eight codes in the low bytes of a lane.
    const hn::Repartition<uint64_t, D8> d;
    const auto two = hn::Set(d, 0x0001000100010001u * ((1u << 2 * bits) - 1));
    const auto four = hn::Set(d, 0x0000000100000001u * ((uint64_t{1} << 4 * bits) - 1));
    auto w = hn::BitCast(d, codes);
    w = hn::And(hn::Or(w, hn::ShiftRight<8 - bits>(w)), two);
    w = hn::And(hn::Or(w, hn::ShiftRight<16 - 2 * bits>(w)), four);
    w = hn::Or(w, hn::ShiftRight<32 - 4 * bits>(w));
    alignas(64) uint64_t packed[hn::MaxLanes(d)];
    hn::Store(w, d, packed);
    for (size_t k = 0; k < hn::Lanes(d); ++k) std::memcpy(to + k * bits, &packed[k], bits);
  }
}

#endif

// Packs the codes of x[0, n): encode(v) has those of a vector of floats in its 32-bit lanes, and
// nothing above them. Writes exactly PackedBytes(n, bits) bytes.
template <int bits, typename From, class Encode>
HWY_INLINE void StoreCodes(const From* HWY_RESTRICT x, size_t n, const Encode& encode,
                           uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Repartition<uint8_t, decltype(df)> d8;
  const auto at = [&](size_t v) HWY_ATTR {
    return hn::BitCast(du, encode(LoadToFloat(df, x + i + v * lanes)));
  };
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto bytes = BytesByVector(du, JoinLowBytes(du, at(0), at(1), at(2), at(3)));
    StorePacked<bits>(d8, bytes, to + i * bits / 8);
  }
#endif
  // A scalar target takes as many as fill whole bytes.
  constexpr size_t kChunk = std::max<size_t>(4 * hn::MaxLanes(df), 8);
  const hn::Rebind<uint8_t, decltype(df)> du8;
  uint8_t codes[kChunk];
  for (; i < n; i += kChunk) {
    const size_t count = std::min(kChunk, n - i);
    for (size_t k = 0; k < count; k += lanes) {
      const auto v =
          k + lanes <= count ? LoadToFloat(df, x + i + k) : LoadToFloatN(df, x + i + k, count - k);
      hn::StoreU(hn::DemoteTo(du8, encode(v)), du8, codes + k);
    }
    PackBits<bits>(codes, static_cast<int64_t>(count), to + i * bits / 8);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
