// SPDX-License-Identifier: Apache-2.0
// A tensor as lines of elements along one axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {

// Line k starts at Start(k), its elements are `stride` apart.
struct Lines {
  int64_t count, size, stride;

  Lines(int64_t outer, int64_t size, int64_t inner)
      : count(outer * inner), size(size), stride(inner) {}
  Lines(const std::vector<int64_t>& dims, int axis)
      : Lines(Product(dims, 0, axis), dims[axis], Product(dims, axis + 1, dims.size())) {}
  int64_t Start(int64_t line) const { return line / stride * stride * size + line % stride; }
};

// Calls f(line) for all lines, in parallel if they are long: `work` bytes an element.
template <typename F>
void ForEachLine(const Lines& lines, int64_t work, const F& f) {
  ParallelFor(lines.count, work * std::max<int64_t>(lines.size, 1),
              [&](int64_t begin, int64_t end) {
                for (int64_t line = begin; line < end; ++line) f(line);
              });
}

}  // namespace pagefuse::onnx_ops
