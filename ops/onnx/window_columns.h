// SPDX-License-Identifier: Apache-2.0
// The windows of a convolution of bytes as columns of a matrix (im2col).
#pragma once

#include <cstdint>

#include "pagefuse/ops/onnx/strided_loop.h"
#include "pagefuse/ops/onnx/window.h"

namespace pagefuse::onnx_ops {

// Of [channels, spatial...] planes that lie one after the other; row c * taps + t of the matrix has
// tap t of channel c for each output point. The window must outlive it.
class WindowColumns {
 public:
  WindowColumns(const Window& window, int64_t channels);

  // Output points that are gathered at once: whole rows of the output, so many that the matrix
  // stays in a cache.
  int64_t PartPoints() const { return part_points_; }
  // Columns of the output points of `points`, which begin at a multiple of PartPoints() and are as
  // many at most; rows of the matrix are PartPoints() bytes apart. What lies outside the planes is
  // `outside`. Shared among the workers of the call.
  void Gather(const uint8_t* x, uint8_t outside, PointRange points, uint8_t* matrix) const;

 private:
  // What a tap reads.
  struct Tap;
  Tap TapOf(int64_t tap) const;
  // Row `line` of the output, for one tap.
  void GatherLine(const uint8_t* plane, uint8_t outside, const Tap& tap, int64_t line,
                  uint8_t* to) const;

  const Window& window_;
  int64_t channels_, taps_, width_;
  int64_t part_points_;
};

}  // namespace pagefuse::onnx_ops
