#include "pagefuse/ops/onnx/window_columns.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/parallel.h"

namespace pagefuse::onnx_ops {

WindowColumns::WindowColumns(const Window& window, int64_t channels)
    : window_(window),
      channels_(channels),
      taps_(NumTaps(window)),
      width_(std::max<int64_t>(window.back().output, 1)) {
  constexpr int64_t kMatrixBytes = 2 << 20;
  const int64_t lines = std::max<int64_t>(NumOutputs(window) / width_, 1);
  const int64_t line_bytes = std::max<int64_t>(channels * taps_ * width_, 1);
  part_points_ = std::clamp<int64_t>(kMatrixBytes / line_bytes, 1, lines) * width_;
}

struct WindowColumns::Line {
  int64_t index = 0;  // of the output row
  int64_t tap = 0;
};

void WindowColumns::GatherLine(const uint8_t* plane, uint8_t outside, const Line& line,
                               uint8_t* to) const {
  const WindowAxis& along = window_.back();
  int64_t tap = line.tap / along.kernel, row = line.index;
  int64_t offset = 0, stride = along.input;
  bool inside = true;
  for (size_t a = window_.size() - 1; a-- > 0;) {
    const WindowAxis& axis = window_[a];
    const int64_t at = axis.Start(row % axis.output) + tap % axis.kernel * axis.dilation;
    inside = inside && at >= 0 && at < axis.input;
    offset += at * stride;
    stride *= axis.input;
    tap /= axis.kernel;
    row /= axis.output;
  }
  // Output column o reads input column o * stride + start.
  const int64_t start = line.tap % along.kernel * along.dilation - along.pad;
  int64_t first = start >= 0 ? 0 : (-start + along.stride - 1) / along.stride;
  int64_t last = along.input <= start ? 0 : (along.input - start - 1) / along.stride + 1;
  if (!inside) last = 0;
  last = std::min(last, width_);
  first = std::min(first, last);
  std::memset(to, outside, static_cast<size_t>(first));
  std::memset(to + last, outside, static_cast<size_t>(width_ - last));
  if (first == last) return;
  const uint8_t* from = plane + offset + start;
  if (along.stride == 1) {
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
    return;
  }
  for (int64_t o = first; o < last; ++o) to[o] = from[o * along.stride];
}

void WindowColumns::Gather(const uint8_t* x, uint8_t outside, PointRange points,
                           uint8_t* matrix) const {
  const int64_t plane = NumInputs(window_);
  const int64_t lines = (points.end - points.begin) / width_;
  ParallelFor(channels_ * taps_, lines * width_, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < lines; ++i) {
        GatherLine(x + row / taps_ * plane, outside, {points.begin / width_ + i, row % taps_},
                   matrix + row * part_points_ + i * width_);
      }
    }
  });
}

}  // namespace pagefuse::onnx_ops
