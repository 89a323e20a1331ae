// SPDX-License-Identifier: Apache-2.0
// Tiles of float32 sums in registers, which kernels of products share. For foreach_target.
#if defined(PAGEFUSE_KERNELS_LINALG_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LINALG_REGISTER_TILE_INL_H_
#undef PAGEFUSE_KERNELS_LINALG_REGISTER_TILE_INL_H_
#else
#define PAGEFUSE_KERNELS_LINALG_REGISTER_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = hn::MaxLanes(D());
// A tile of sums takes kMaxRows * kVectors registers, beside two of W and one of x: 15 of 16, or 27
// of 32.
constexpr int kVectors = 2;
constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr int64_t kColumns = kVectors * kLanes;  // of a panel of W: [k][kColumns]

// sums += column k of x by row k of W.
template <int kRows, int kVecs>
HWY_INLINE void AddProducts(const RowsView& x, int64_t k, const V (&weights)[kVecs],
                            V (&sums)[kRows][kVecs]) {
  for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(D(), x.data[r * x.stride + k]);
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(weights[v], factor, sums[r][v]);
  }
}

// sums += kRows rows of x by `rows` rows of a panel, one by one.
template <int kRows>
HWY_INLINE void AddPanel(const RowsView& x, const float* panel, int64_t rows,
                         V (&sums)[kRows][kVectors]) {
  for (int64_t k = 0; k < rows; ++k) {
    V weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = hn::LoadU(D(), panel + k * kColumns + v * kLanes);
    }
    AddProducts(x, k, weights, sums);
  }
}

HWY_INLINE int64_t RowTiles(int64_t m) { return (m + kMaxRows - 1) / kMaxRows; }

// Calls body(r, rows) for all m rows of x: in as few tiles as there can be, of about one size, since
// small ones wait for their own sums.
template <class Body>
HWY_INLINE void ForRowTiles(int64_t m, const Body& body) {
  int64_t r = 0;
  for (int64_t left = RowTiles(m); left > 0; --left) {
    const int64_t rows = (m - r + left - 1) / left;
    body(r, rows);
    r += rows;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
