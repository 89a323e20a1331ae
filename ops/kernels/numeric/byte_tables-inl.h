// SPDX-License-Identifier: Apache-2.0
// Lookups of bytes in tables of 128: AVX512-VBMI. Include inside a file that hwy/foreach_target.h
// recompiles. PF_HAS_BYTE_TABLES is 0 for other targets, and without HWY_WANT_AVX3_DL, which must
// be defined where the file is compiled (CMakeLists.txt).
#if defined(PAGEFUSE_KERNELS_NUMERIC_BYTE_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_BYTE_TABLES_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_BYTE_TABLES_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_BYTE_TABLES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef PF_HAS_BYTE_TABLES
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#define PF_HAS_BYTE_TABLES 1

using ByteVec = hn::Vec<hn::Full512<uint8_t>>;

// The bytes of a table's two halves at the low seven bits of each lane of `indices`.
HWY_INLINE ByteVec LookupBytes(ByteVec first, ByteVec second, ByteVec indices) {
  return ByteVec{_mm512_permutex2var_epi8(first.raw, indices.raw, second.raw)};
}

// Which bytes of two vectors one behind the other.
struct EveryOtherByte {
  alignas(64) uint8_t at[64];
  constexpr explicit EveryOtherByte(size_t first) : at{} {
    for (size_t i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(2 * i + first);
  }
};
inline constexpr EveryOtherByte kLowBytes(0);
inline constexpr EveryOtherByte kHighBytes(1);

// The low (high) bytes of the 64 words of two vectors.
template <class V>
HWY_INLINE ByteVec LowBytes(V first, V second) {
  return LookupBytes(ByteVec{first.raw}, ByteVec{second.raw},
                     hn::Load(hn::Full512<uint8_t>(), kLowBytes.at));
}
template <class V>
HWY_INLINE ByteVec HighBytes(V first, V second) {
  return LookupBytes(ByteVec{first.raw}, ByteVec{second.raw},
                     hn::Load(hn::Full512<uint8_t>(), kHighBytes.at));
}

#else
#define PF_HAS_BYTE_TABLES 0
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
