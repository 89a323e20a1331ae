// SPDX-License-Identifier: Apache-2.0
// What the vector loops over integers of nbits_int8_*.cc share. For foreach_target.
#if defined(PAGEFUSE_KERNELS_LINALG_NBITS_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LINALG_NBITS_INT8_INL_H_
#undef PAGEFUSE_KERNELS_LINALG_NBITS_INT8_INL_H_
#else
#define PAGEFUSE_KERNELS_LINALG_NBITS_INT8_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using D32 = hn::RebindToSigned<DF>;
using D8 = hn::Repartition<int8_t, DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VF = hn::Vec<DF>;
using V32 = hn::Vec<D32>;
using V8 = hn::Vec<D8>;
using VU8 = hn::Vec<DU8>;

constexpr int64_t kLanes = hn::MaxLanes(DF());
constexpr int64_t kVectorBytes = 4 * kLanes;

// Products<bits>: how sums of products of whole codes are made, a lane for each row of W. Of(bytes) is
// once for each vector of codes, Add(sum, codes, x) for each of x's. Begin(start) and Finish(sum, start)
// make the sum of a block, less what the centre of codes adds to it: int32.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
HWY_INLINE V32 AddPairs(V32 a, V32 b) {
  const hn::Repartition<int16_t, DF> d16;
  return hn::BitCast(D32(), hn::Add(hn::BitCast(d16, a), hn::BitCast(d16, b)));
}
HWY_INLINE V32 MultiplyPairs(VU8 codes, V8 x) {
#if HWY_TARGET <= HWY_AVX2
  return V32{_mm256_maddubs_epi16(codes.raw, x.raw)};
#else
  return V32{_mm_maddubs_epi16(codes.raw, x.raw)};
#endif
}
HWY_INLINE V32 WidenPairs(V32 sums) {
#if HWY_TARGET <= HWY_AVX2
  return V32{_mm256_madd_epi16(sums.raw, _mm256_set1_epi16(1))};
#else
  return V32{_mm_madd_epi16(sums.raw, _mm_set1_epi16(1))};
#endif
}

// Lanes are pairs of int16: of 4-bit codes 16 products fit, 15 * 127 * 16 < 2^15, which are those of a
// block has for a lane.
struct NibbleProducts {
  using Codes = VU8;

  static HWY_INLINE Codes Of(VU8 codes) { return codes; }
  static HWY_INLINE V32 Begin(int32_t /*start*/) { return hn::Zero(D32()); }
  static HWY_INLINE V32 Add(V32 sum, const Codes& codes, V8 x) {
    return AddPairs(sum, MultiplyPairs(codes, x));
  }
  static HWY_INLINE V32 Finish(V32 sum, int32_t start) {
    return hn::Add(WidenPairs(sum), hn::Set(D32(), start));
  }
};

// Signs of centred codes go to x: 128 * 127 * 2 is int16, and x has no -128.
struct ByteProducts {
  struct Codes {
    VU8 magnitudes;
    V8 signed_codes;
  };

  static HWY_INLINE Codes Of(VU8 codes) {
    const V8 centred = hn::BitCast(D8(), hn::Xor(codes, hn::Set(DU8(), 0x80)));
    return {hn::BitCast(DU8(), hn::Abs(centred)), centred};
  }
  static HWY_INLINE V32 Add(V32 sum, const Codes& codes, V8 x) {
#if HWY_TARGET <= HWY_AVX2
    const V8 turned{_mm256_sign_epi8(x.raw, codes.signed_codes.raw)};
#else
    const V8 turned{_mm_sign_epi8(x.raw, codes.signed_codes.raw)};
#endif
    return hn::Add(sum, WidenPairs(MultiplyPairs(codes.magnitudes, turned)));
  }
  static HWY_INLINE V32 Begin(int32_t /*start*/) { return hn::Zero(D32()); }
  static HWY_INLINE V32 Finish(V32 sum, int32_t /*start*/) { return sum; }  // codes are centred
};

template <int kBits>
using Products = std::conditional_t<kBits == 4, NibbleProducts, ByteProducts>;
#else
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3_DL
// Sums of four products in each lane. The sums of two that come before must fit int16.
HWY_INLINE V32 SmallQuads(VU8 codes, V8 x) {
  return V32{_mm512_madd_epi16(_mm512_maddubs_epi16(codes.raw, x.raw), _mm512_set1_epi16(1))};
}
#endif

// sums + the products of four codes and four integers, which lie in [-127, 127], in each lane.
template <int kBits>
HWY_INLINE V32 AddQuads(V32 sums, VU8 codes, V8 x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  // Highway asks the processor for AVX512-VNNI before it takes AVX3_DL, but (1.0.3) the compiler
  // for AVX-VNNI: no intrinsic.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(x.raw));
  return sums;
#elif HWY_ARCH_X86
  if constexpr (kBits == 4) return hn::Add(sums, SmallQuads(codes, x));
  // 127 * 127 * 2 and 128 * 127 * 2 are int16, 255 * 127 * 2 is not.
  const auto top = hn::Set(DU8(), 0x80);
  sums = hn::Add(sums, SmallQuads(hn::AndNot(top, codes), x));
  return hn::Add(sums, SmallQuads(hn::And(top, codes), x));
#else
  const hn::Repartition<int16_t, DF> d16;
  const auto c = hn::BitCast(hn::Repartition<uint16_t, DF>(), codes);
  const auto q = hn::BitCast(d16, x);
  auto other = hn::Zero(D32());
  const auto even = hn::And(hn::BitCast(d16, c), hn::Set(d16, 0xFF));
  sums = hn::ReorderWidenMulAccumulate(D32(), even, hn::ShiftRight<8>(hn::ShiftLeft<8>(q)), sums,
                                       other);
  sums = hn::ReorderWidenMulAccumulate(D32(), hn::BitCast(d16, hn::ShiftRight<8>(c)),
                                       hn::ShiftRight<8>(q), sums, other);
  return hn::RearrangeToOddPlusEven(sums, other);
#endif
}

template <int kBits>
struct WideProducts {
  using Codes = VU8;

  static HWY_INLINE Codes Of(VU8 codes) { return codes; }
  static HWY_INLINE V32 Begin(int32_t start) { return hn::Set(D32(), start); }
  static HWY_INLINE V32 Add(V32 sum, const Codes& codes, V8 x) {
    return AddQuads<kBits>(sum, codes, x);
  }
  static HWY_INLINE V32 Finish(V32 sum, int32_t /*start*/) { return sum; }
};

template <int kBits>
using Products = WideProducts<kBits>;
#endif

// Codes in the low and in the high half of each byte.
HWY_INLINE VU8 LowCodes(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 0x0F)); }
HWY_INLINE VU8 HighCodes(VU8 bytes) {
  const hn::Repartition<uint16_t, DF> d16;
  return LowCodes(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

// What codes count from where nothing else is said.
template <int kBits>
constexpr int32_t Centre() {
  return kBits == 4 ? 8 : 128;
}

// Blocks of x in one of W, as a power of two.
HWY_INLINE int BlocksShift(int64_t weight_block) {
  return std::countr_zero(static_cast<uint64_t>(weight_block / kInt8Block));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
