// SPDX-License-Identifier: Apache-2.0
// e2m1 codes of bfloat16 groups under powers of two, by lookup. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_E2M1_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_E2M1_WORDS_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_E2M1_WORDS_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_E2M1_WORDS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/byte_tables-inl.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_HAS_BYTE_TABLES

// e2m1 codes of numbers from 2^-kBelow on, and of what lies between them.
struct E2M1Table {
  static constexpr int kDropped = 5;     // bits of a bfloat16's mantissa behind the first two
  static constexpr uint32_t kBelow = 3;  // smaller numbers have code 0

  // Entry 2n is the nth number whose mantissa has two bits, 2n + 1 all between it and the next.
  alignas(64) uint8_t code[64];
  constexpr E2M1Table() : code{} {
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t bits = ((127 - kBelow) << 7) + (i << (kDropped - 1));
      code[i] = EncodeFloat<E2M1Format>(std::bit_cast<float>(bits << 16), Overflow::kSaturate);
    }
  }
};
inline constexpr E2M1Table kE2M1Table;

// Two bits of a mantissa, and whether any follow, say to which code a number rounds: so eight
// entries for each of the exponents that have codes but 0.
class E2M1Words {
 public:
  // Scales (powers of two) that leave the lowest of those exponents at 0 or more.
  static bool Takes(float scale) { return std::bit_cast<uint32_t>(scale) >> 23 >= kBelow; }

  HWY_INLINE E2M1Words() : table_{hn::Load(D8(), kE2M1Table.code)} {}

  // Codes of 64 numbers at x, a byte each: 32 under one scale, then 32 under another.
  HWY_INLINE ByteVec Encode(const Bfloat16* HWY_RESTRICT x, float first, float second) const {
    const auto* words = reinterpret_cast<const uint16_t*>(x);
    const ByteVec at = LowBytes(Entries(hn::LoadU(D16(), words), first),
                                Entries(hn::LoadU(D16(), words + kWords), second));
    const ByteVec codes{_mm512_permutexvar_epi8(at.raw, table_.raw)};
    return hn::OrAnd(codes, hn::ShiftRight<4>(at), hn::Set(D8(), E2M1Format::kSignBit));
  }

 private:
  using D8 = hn::Full512<uint8_t>;
  using D16 = hn::Full512<uint16_t>;
  using V16 = hn::Vec<D16>;
  static constexpr size_t kWords = 32;
  static constexpr int kDropped = E2M1Table::kDropped;
  static constexpr uint32_t kBelow = E2M1Table::kBelow;
  static constexpr int kSignEntry = 7;  // the bit of an entry's number that has the sign

  // Where the table has the magnitudes of the quotients, and their signs, in the low bytes.
  static HWY_INLINE V16 Entries(V16 words, float scale) {
    const D16 d;
    const auto lowest =
        static_cast<uint16_t>((std::bit_cast<uint32_t>(scale) >> 16) - (kBelow << 7));
    const V16 magnitude = hn::And(words, hn::Set(d, 0x7FFF));
    const V16 steps = hn::SaturatedSub(magnitude, hn::Set(d, lowest));
    const V16 down = hn::ShiftRight<kDropped>(steps);
    const V16 up = hn::ShiftRight<kDropped>(
        hn::Add(steps, hn::Set(d, static_cast<uint16_t>((1 << kDropped) - 1))));
    return hn::OrAnd(hn::Add(down, up), hn::ShiftRight<15 - kSignEntry>(words),
                     hn::Set(d, 1 << kSignEntry));
  }

  ByteVec table_;
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
