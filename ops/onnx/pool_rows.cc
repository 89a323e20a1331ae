// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/pool_rows.h"

#include <algorithm>

namespace pagefuse::onnx_ops {
namespace {

template <int64_t stride>
void Pick(const float* from, int64_t count, float* to) {
  for (int64_t o = 0; o < count; ++o) to[o] = from[o * stride];
}

void PickAny(const float* from, int64_t stride, int64_t count, float* to) {
  if (stride == 2) return Pick<2>(from, count, to);
  if (stride == 4) return Pick<4>(from, count, to);
  for (int64_t o = 0; o < count; ++o) to[o] = from[o * stride];
}

}  // namespace

PoolRows::PoolRows(const Window& window, const PoolFold& fold)
    : window_(window),
      fold_(fold),
      outer_(window.begin(), window.end() - 1),
      rows_(NumOutputs(outer_)),
      mapped_(fold.map == nullptr ? 0 : static_cast<size_t>(NumInputs(window))),
      folded_(static_cast<size_t>(window.back().input)),
      picked_(static_cast<size_t>(window.back().output)) {}

const float* PoolRows::Mapped(const float* x) {
  if (fold_.map == nullptr) return x;
  fold_.map(x, mapped_.data(), static_cast<int64_t>(mapped_.size()), 0.0f);
  return mapped_.data();
}

const float* PoolRows::FoldAcross(const float* x, int64_t row) {
  const int64_t width = window_.back().input;
  const float* folded = nullptr;
  ForEachTap(outer_, row, [&](int64_t, int64_t offset) {
    const float* from = x + offset * width;
    if (folded == nullptr) {
      folded = from;
      return;
    }
    fold_.fold({folded, 1, from, 1}, folded_.data(), width);
    folded = folded_.data();
  });
  return folded;
}

void PoolRows::FoldAlong(const float* row, float* y) {
  const WindowAxis& axis = window_.back();
  std::fill_n(y, axis.output, fold_.start);
  if (row == nullptr) return;
  for (int64_t tap = 0; tap < axis.kernel; ++tap) {
    // Output o reads input o * stride + shift.
    const int64_t shift = tap * axis.dilation - axis.pad;
    const int64_t first = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
    const int64_t last =
        axis.input <= shift ? 0 : std::min(axis.output, (axis.input - shift - 1) / axis.stride + 1);
    const int64_t count = last - first;
    if (count <= 0) continue;
    const float* from = row + first * axis.stride + shift;
    if (axis.stride > 1) {
      PickAny(from, axis.stride, count, picked_.data());
      from = picked_.data();
    }
    fold_.fold({y + first, 1, from, 1}, y + first, count);
  }
}

}  // namespace pagefuse::onnx_ops
