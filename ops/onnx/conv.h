// SPDX-License-Identifier: Apache-2.0
// What convolutions share: checks of shapes, and the plain loop.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/onnx/window.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::onnx_ops {

// Output 0 is [N, M, ...] for X [N, C, ...], input 0, and W [M, C / group, ...], input `weights`.
absl::Status InferConv(ShapeContext& context, int weights, DataType type);

struct ConvPlan {
  Window window;
  int64_t images = 0, channels = 0, outputs = 0;  // N, C, M
  int64_t group_channels = 0;                     // C / group
  int64_t group_outputs = 0;                      // M / group
};
absl::StatusOr<ConvPlan> PlanConv(const KernelArgs& args, int weights);

// Plane n * M + m of the output: one output channel of one image.
template <typename Sum, typename Product, typename Store>
void ConvolvePlane(const ConvPlan& plan, int64_t plane, const Product& product,
                   const Store& store) {
  const int64_t points = NumOutputs(plan.window);
  const int64_t inputs = NumInputs(plan.window);
  const int64_t taps = NumTaps(plan.window);
  const int64_t n = plane / plan.outputs;
  const int64_t m = plane % plan.outputs;
  const int64_t first = m / plan.group_outputs * plan.group_channels;
  for (int64_t point = 0; point < points; ++point) {
    Sum sum{};
    for (int64_t c = 0; c < plan.group_channels; ++c) {
      const int64_t x = (n * plan.channels + first + c) * inputs;
      const int64_t w = (m * plan.group_channels + c) * taps;
      ForEachTap(plan.window, point,
                 [&](int64_t tap, int64_t offset) { sum += product(x + offset, w + tap, m); });
    }
    store(m, plane * points + point, sum);
  }
}

// Calls store(m, element of y, sum) with the sum of product(x element, w element, m) over all taps
// and channels, for each output point. `Sum` starts at 0; products are of elements inside the input
// alone.
template <typename Sum, typename Product, typename Store>
void Convolve(const ConvPlan& plan, const Product& product, const Store& store) {
  const int64_t taps = NumOutputs(plan.window) * NumTaps(plan.window);
  const int64_t work = std::max<int64_t>(taps * plan.group_channels, 1);
  ParallelFor(plan.images * plan.outputs, work, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      ConvolvePlane<Sum>(plan, plane, product, store);
    }
  });
}

}  // namespace pagefuse::onnx_ops
