// SPDX-License-Identifier: Apache-2.0
// The lanes of a vector that a mask takes, stored one behind the other. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_COMPRESS_TO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_COMPRESS_TO_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_COMPRESS_TO_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_COMPRESS_TO_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns how many; behind them `to` must have room for the rest of the vector, which may be
// written. hn::CompressStore is one instruction where there is AVX-512, but that takes a Zen 4 21
// ns a vector; with a register in between it takes 2.
template <class D>
HWY_INLINE size_t CompressTo(D d, hn::Vec<D> v, hn::Mask<D> taken, hn::TFromD<D>* HWY_RESTRICT to) {
  hn::StoreU(hn::Compress(v, taken), d, to);
  return hn::CountTrue(d, taken);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
