// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/window_columns.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/base/parallel.h"

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

struct WindowColumns::Tap {
  int64_t start = 0;             // output column o reads input column o * stride + start
  int64_t first = 0, last = 0;   // output columns that read inside
  std::vector<int64_t> offsets;  // of the other axes
};

WindowColumns::Tap WindowColumns::TapOf(int64_t tap) const {
  const WindowAxis& along = window_.back();
  Tap result;
  result.start = tap % along.kernel * along.dilation - along.pad;
  const int64_t start = result.start, stride = along.stride;
  const int64_t last = along.input <= start ? 0 : (along.input - start - 1) / stride + 1;
  result.last = std::min(last, width_);
  result.first = std::min(start >= 0 ? 0 : (-start + stride - 1) / stride, result.last);
  result.offsets.resize(window_.size() - 1);
  tap /= along.kernel;
  for (size_t a = window_.size() - 1; a-- > 0;) {
    result.offsets[a] = tap % window_[a].kernel * window_[a].dilation;
    tap /= window_[a].kernel;
  }
  return result;
}

void WindowColumns::GatherLine(const uint8_t* plane, uint8_t outside, const Tap& tap, int64_t line,
                               uint8_t* to) const {
  const WindowAxis& along = window_.back();
  int64_t offset = 0, stride = along.input;
  bool inside = true;
  for (size_t a = window_.size() - 1; a-- > 0;) {
    const WindowAxis& axis = window_[a];
    const int64_t at = axis.Start(a == 0 ? line : line % axis.output) + tap.offsets[a];
    inside = inside && at >= 0 && at < axis.input;
    offset += at * stride;
    stride *= axis.input;
    if (a > 0) line /= axis.output;
  }
  if (!inside) {
    std::memset(to, outside, static_cast<size_t>(width_));
    return;
  }
  for (int64_t o = 0; o < tap.first; ++o) to[o] = outside;
  for (int64_t o = tap.last; o < width_; ++o) to[o] = outside;
  if (tap.first == tap.last) return;
  const uint8_t* from = plane + offset + tap.start;
  if (along.stride == 1) {
    std::memcpy(to + tap.first, from + tap.first, static_cast<size_t>(tap.last - tap.first));
    return;
  }
  for (int64_t o = tap.first; o < tap.last; ++o) to[o] = from[o * along.stride];
}

void WindowColumns::Gather(const uint8_t* x, uint8_t outside, PointRange points,
                           uint8_t* matrix) const {
  const int64_t plane = NumInputs(window_);
  const int64_t first = points.begin / width_, lines = (points.end - points.begin) / width_;
  ParallelFor(channels_ * taps_, lines * width_, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Tap tap = TapOf(row % taps_);
      for (int64_t i = 0; i < lines; ++i) {
        GatherLine(x + row / taps_ * plane, outside, tap, first + i,
                   matrix + row * part_points_ + i * width_);
      }
    }
  });
}

}  // namespace pagefuse::onnx_ops
