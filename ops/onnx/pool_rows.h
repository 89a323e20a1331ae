// SPDX-License-Identifier: Apache-2.0
// Pools of float32 planes by whole rows: the rows that a window spans are folded into one, then its
// neighbours along the row.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/onnx/window.h"

namespace pagefuse::onnx_ops {

// What a pool makes of the elements of a window.
struct PoolFold {
  UnaryRow map;      // of each element first; null: as it is
  BinaryRowFn fold;  // of two rows
  float start;       // of windows that lie wholly in the pads
};

// Memory of a thread; kept between planes.
class PoolRows {
 public:
  // Both must outlive it.
  PoolRows(const Window& window, const PoolFold& fold);

  // y [outputs] = fold over the taps of each window inside x [inputs]. Calls finish(row, y) for
  // each finished row of the output.
  template <typename Finish>
  void Run(const float* x, float* y, const Finish& finish) {
    const int64_t width = window_.back().output;
    x = Mapped(x);
    for (int64_t row = 0; row < rows_; ++row, y += width) {
      FoldAlong(FoldAcross(x, row), y);
      finish(row, y);
    }
  }

  // The axes but the last, whose outputs are the rows.
  const Window& outer() const { return outer_; }

 private:
  const float* Mapped(const float* x);
  // The rows under row `row` of the output as one; null if all of them lie in the pads.
  const float* FoldAcross(const float* x, int64_t row);
  // The windows of one row.
  void FoldAlong(const float* row, float* y);

  const Window& window_;
  const PoolFold& fold_;
  Window outer_;
  int64_t rows_;
  std::vector<float> mapped_, folded_, picked_;
};

}  // namespace pagefuse::onnx_ops
