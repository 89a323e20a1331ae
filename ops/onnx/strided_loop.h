// SPDX-License-Identifier: Apache-2.0
// A loop over the points of a box, with offsets into strided tensors kept on the way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"

namespace pagefuse::onnx_ops {

// Points [begin, end) of a box in row-major order.
struct PointRange {
  int64_t begin;
  int64_t end;
};

// Calls f(offsets) for each point of the range; offsets[k] is the point's distance from the origin
// by strides[k], which has one entry a dim.
template <size_t N, typename F>
void ForEachPoint(std::span<const int64_t> dims,
                  const std::array<std::span<const int64_t>, N>& strides, PointRange range,
                  const F& f) {
  absl::InlinedVector<int64_t, 8> index(dims.size());
  std::array<int64_t, N> offsets{};
  int64_t rest = range.begin;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 0) return;
    index[i] = rest % dims[i];
    rest /= dims[i];
    for (size_t k = 0; k < N; ++k) offsets[k] += index[i] * strides[k][i];
  }
  for (int64_t point = range.begin; point < range.end; ++point) {
    f(offsets);
    for (size_t i = dims.size(); i-- > 0;) {
      const bool wraps = ++index[i] == dims[i];
      const int64_t steps = wraps ? 1 - dims[i] : 1;
      for (size_t k = 0; k < N; ++k) offsets[k] += steps * strides[k][i];
      if (!wraps) break;
      index[i] = 0;
    }
  }
}

}  // namespace pagefuse::onnx_ops
