// SPDX-License-Identifier: Apache-2.0
// A window that slides over the spatial axes of a tensor [N, C, D1, ...]: what convolutions and
// pools share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

// By spatial axis. Tap k of output index o reads input index o * stride - pad + k * dilation, if
// that is in [0, input).
struct WindowAxis {
  int64_t input = 0, output = 0;
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t pad = 0, end_pad = 0;

  int64_t Start(int64_t o) const { return o * stride - pad; }
  // Taps [first, last) of output index o read inside the input.
  int64_t First(int64_t o) const {
    const int64_t start = Start(o);
    return start >= 0 ? 0 : std::min(kernel, (-start + dilation - 1) / dilation);
  }
  int64_t Last(int64_t o) const {
    const int64_t room = input - Start(o);
    return room <= 0 ? 0 : std::min(kernel, (room + dilation - 1) / dilation);
  }
};
using Window = std::vector<WindowAxis>;

// Reads strides, dilations, pads, auto_pad, ceil_mode and, unless `kernel` is given, kernel_shape,
// and sizes the output over an input of `sizes` (spatial dims only). InvalidArgument naming the
// attribute where lists have the wrong length or values are not positive, or the window is larger
// than the padded input.
absl::StatusOr<Window> ReadWindow(const Node& node, const std::vector<int64_t>& sizes,
                                  const std::vector<int64_t>& kernel = {});

// The spatial part of a shape [N, C, ...] in numbers.
inline std::vector<int64_t> SpatialDims(const std::vector<int64_t>& dims) {
  return {dims.begin() + 2, dims.end()};
}
int64_t NumOutputs(const Window& window);
int64_t NumInputs(const Window& window);
int64_t NumTaps(const Window& window);

// Sets output `i` to [N, channels, spatial...]; spatial dims are unknown unless input 0's are
// numbers. `kernel`: as in ReadWindow, nullopt if not known. InvalidArgument unless input 0 has
// rank 3 or more.
absl::Status InferWindow(ShapeContext& context, const Dim& channels,
                         const std::optional<std::vector<int64_t>>& kernel, int num_outputs,
                         DataType type);

// Calls f(tap, offset) for the taps of output point `point` (row-major) that read inside the input;
// both are row-major offsets, of the kernel and of the input plane.
template <typename F>
void ForEachTap(const Window& window, int64_t point, const F& f) {
  constexpr size_t kMaxAxes = 8;
  int64_t index[kMaxAxes], first[kMaxAxes], last[kMaxAxes], start[kMaxAxes];
  const size_t axes = window.size();
  for (size_t a = axes; a-- > 0;) {
    const int64_t o = point % window[a].output;
    point /= window[a].output;
    first[a] = index[a] = window[a].First(o);
    last[a] = window[a].Last(o);
    start[a] = window[a].Start(o);
    if (first[a] >= last[a]) return;
  }
  if (axes == 0) return f(int64_t{0}, int64_t{0});
  const WindowAxis& along = window.back();
  while (true) {
    int64_t tap = 0, offset = 0;
    for (size_t a = 0; a + 1 < axes; ++a) {
      tap = tap * window[a].kernel + index[a];
      offset = offset * window[a].input + start[a] + index[a] * window[a].dilation;
    }
    tap *= along.kernel;
    offset = offset * along.input + start[axes - 1];
    for (int64_t i = first[axes - 1]; i < last[axes - 1]; ++i) {
      f(tap + i, offset + i * along.dilation);
    }
    size_t a = axes - 1;
    while (a > 0 && ++index[a - 1] == last[a - 1]) {
      --a;
      index[a] = first[a];
    }
    if (a == 0) return;
  }
}

}  // namespace pagefuse::onnx_ops
