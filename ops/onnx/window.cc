// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/window.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// Larger attributes are no window of anything, and products of smaller ones do not overflow.
constexpr int64_t kMaxValue = int64_t{1} << 30;
constexpr size_t kMaxAxes = 8;

struct Range {
  int64_t low, otherwise;
};

// A list of `count` values from `range.low` on; `range.otherwise` for each if it is not given.
absl::StatusOr<std::vector<int64_t>> ReadList(const Node& node, std::string_view name, size_t count,
                                              Range range) {
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> values, node.IntsAttribute(name, {}));
  if (values.empty()) values.assign(count, range.otherwise);
  if (values.size() != count) {
    return AttributeError(node, name, StrCat("expected ", count, " values, got ", values.size()));
  }
  for (int64_t value : values) {
    if (value >= range.low && value <= kMaxValue) continue;
    return AttributeError(node, name,
                          StrCat("expected values from ", range.low, " on, got ", value));
  }
  return values;
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Output size, and pads where auto_pad says them.
absl::Status Size(const Node& node, const std::string& auto_pad, bool ceil, WindowAxis& axis) {
  const int64_t extent = axis.dilation * (axis.kernel - 1) + 1;
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    axis.output = CeilDiv(axis.input, axis.stride);
    const int64_t total =
        std::max<int64_t>((axis.output - 1) * axis.stride + extent - axis.input, 0);
    axis.pad = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    axis.end_pad = total - axis.pad;
    return absl::OkStatus();
  }
  if (auto_pad == "VALID") axis.pad = axis.end_pad = 0;
  const int64_t room = axis.input + axis.pad + axis.end_pad - extent;
  if (room < 0) {
    return NodeError(node, StrCat("a window of ", extent, " is larger than the padded input of ",
                                  axis.input + axis.pad + axis.end_pad));
  }
  axis.output = (ceil ? CeilDiv(room, axis.stride) : room / axis.stride) + 1;
  // A window that starts behind the input and its front pad reads nothing.
  if (ceil && (axis.output - 1) * axis.stride >= axis.input + axis.pad) --axis.output;
  return absl::OkStatus();
}

template <typename F>
int64_t ProductOf(const Window& window, const F& f) {
  int64_t product = 1;
  for (const WindowAxis& axis : window) product *= f(axis);
  return product;
}

}  // namespace

absl::StatusOr<Window> ReadWindow(const Node& node, const std::vector<int64_t>& sizes,
                                  const std::vector<int64_t>& kernel) {
  const size_t axes = sizes.size();
  if (axes > kMaxAxes) {
    return NodeError(node, StrCat("expected at most ", kMaxAxes, " spatial axes, got ", axes));
  }
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> taps, node.IntsAttribute("kernel_shape", kernel));
  if (!kernel.empty() && taps != kernel) {
    return AttributeError(node, "kernel_shape", "differs from the shape of the weights");
  }
  if (kernel.empty() || node.attribute("kernel_shape") != nullptr) {
    PF_ASSIGN_OR_RETURN(taps, ReadList(node, "kernel_shape", axes, {1, 0}));
  }
  PF_ASSIGN_OR_RETURN(const auto strides, ReadList(node, "strides", axes, {1, 1}));
  PF_ASSIGN_OR_RETURN(const auto dilations, ReadList(node, "dilations", axes, {1, 1}));
  PF_ASSIGN_OR_RETURN(const auto pads, ReadList(node, "pads", 2 * axes, {0, 0}));
  PF_ASSIGN_OR_RETURN(const std::string auto_pad, node.StringAttribute("auto_pad", "NOTSET"));
  PF_ASSIGN_OR_RETURN(const int64_t ceil, node.IntAttribute("ceil_mode", 0));
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" &&
      auto_pad != "SAME_LOWER") {
    return AttributeError(node, "auto_pad", StrCat("\"", auto_pad, "\" is not known"));
  }
  Window window(axes);
  int64_t num_taps = 1;
  for (size_t a = 0; a < axes; ++a) {
    num_taps *= std::clamp<int64_t>(taps[a], 1, kMaxValue);
    if (taps[a] < 1 || num_taps > kMaxValue || sizes[a] > kMaxValue * kMaxValue) {
      return NodeError(node, StrCat("a window of ", taps[a], " over ", sizes[a], " elements"));
    }
    window[a] = {.input = sizes[a],
                 .output = 0,
                 .kernel = taps[a],
                 .stride = strides[a],
                 .dilation = dilations[a],
                 .pad = pads[a],
                 .end_pad = pads[axes + a]};
    PF_RETURN_IF_ERROR(Size(node, auto_pad, ceil != 0, window[a]));
  }
  return window;
}

int64_t NumOutputs(const Window& window) {
  return ProductOf(window, [](const WindowAxis& axis) { return axis.output; });
}
int64_t NumInputs(const Window& window) {
  return ProductOf(window, [](const WindowAxis& axis) { return axis.input; });
}
int64_t NumTaps(const Window& window) {
  return ProductOf(window, [](const WindowAxis& axis) { return axis.kernel; });
}

absl::Status InferWindow(ShapeContext& c, const Dim& channels,
                         const std::optional<std::vector<int64_t>>& kernel, int num_outputs,
                         DataType type) {
  const Shape* x = c.input_shape(0);
  std::optional<Shape> y;
  if (x != nullptr) {
    if (x->rank() < 3) {
      return c.InputError(0, StrCat("expected rank 3 or more, got shape ", x->ToString()));
    }
    std::vector<Dim> dims(x->rank());
    dims[0] = (*x)[0];
    dims[1] = channels;
    const std::vector<Dim> spatial(x->dims().begin() + 2, x->dims().end());
    const auto sizes = Shape(spatial).constant();
    if (sizes && kernel) {
      PF_ASSIGN_OR_RETURN(const Window window, ReadWindow(c.node(), *sizes, *kernel));
      for (size_t a = 0; a < window.size(); ++a) dims[2 + a] = Dim(window[a].output);
    }
    y = Shape(std::move(dims));
  }
  for (int i = 0; i < num_outputs; ++i) c.SetOutput(i, i == 0 ? type : DataType::kInt64, y);
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
