// SPDX-License-Identifier: Apache-2.0
// Conv: the plain loop, and oneDNN's.
#include "pagefuse/ops/onnx/conv.h"

#include <atomic>

#include "dnnl.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {

absl::Status InferConv(ShapeContext& c, int weights, DataType type) {
  PF_ASSIGN_OR_RETURN(const int64_t group, c.node().IntAttribute("group", 1));
  if (group < 1) return c.AttributeError("group", StrCat("expected 1 or more, got ", group));
  const Shape* x = c.input_shape(0);
  const Shape* w = c.input_shape(weights);
  std::optional<std::vector<int64_t>> kernel;
  Dim outputs;
  if (w != nullptr) {
    if (w->rank() < 3 || (x != nullptr && x->rank() != w->rank())) {
      return c.InputError(weights, StrCat("expected rank ", x == nullptr ? 3 : x->rank(),
                                          ", got shape ", w->ToString()));
    }
    outputs = (*w)[0];
    kernel = Shape(std::vector<Dim>(w->dims().begin() + 2, w->dims().end())).constant();
    if (outputs.is_constant() && *outputs.constant() % group != 0) {
      return c.InputError(weights, StrCat("expected a multiple of ", group,
                                          " output channels, got shape ", w->ToString()));
    }
    const auto per_group = (*w)[1].constant();
    const auto channels = x == nullptr ? std::nullopt : (*x)[1].constant();
    if (per_group && channels && (*channels % group != 0 || *channels / group != *per_group)) {
      return c.InputError(weights, StrCat("expected ", group, " groups of channels of ",
                                          x->ToString(), ", got shape ", w->ToString()));
    }
  }
  return InferWindow(c, outputs, kernel, 1, type);
}

absl::StatusOr<ConvPlan> PlanConv(const KernelArgs& args, int weights) {
  const TensorArg& x = args.input(0);
  const TensorArg& w = args.input(weights);
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("group", 1));
  ConvPlan plan;
  PF_ASSIGN_OR_RETURN(plan.window,
                      ReadWindow(*args.node, SpatialDims(x.dims), SpatialDims(w.dims)));
  plan.images = x.dims[0];
  plan.channels = x.dims[1];
  plan.outputs = w.dims[0];
  plan.group_channels = w.dims[1];
  plan.group_outputs = std::max<int64_t>(w.dims[0] / group, 1);
  return plan;
}

namespace {

absl::Status InferPlainConv(ShapeContext& c) {
  const Shape* w = c.input_shape(1);
  if (w != nullptr && w->rank() > 0) PF_RETURN_IF_ERROR(ExpectShape(c, 2, Shape({(*w)[0]})));
  return InferConv(c, 1, c.input_type(0));
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 1));
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() {
    const T* x = args.input(0).as<T>();
    const T* w = args.input(1).as<T>();
    const T* bias = args.input(2).as<T>();
    T* y = args.output(0).as<T>();
    Convolve<double>(
        plan,
        [&](int64_t i, int64_t k, int64_t) {
          return static_cast<double>(Load(x[i])) * static_cast<double>(Load(w[k]));
        },
        [&](int64_t m, int64_t at, double sum) {
          if (bias != nullptr) sum += static_cast<double>(Load(bias[m]));
          y[at] = Store<T>(static_cast<Compute<T>>(sum));
        });
  });
}

// oneDNN has convolutions of one to three spatial axes.
absl::Status SupportsDnnl(const KernelQuery& query) {
  const Value* x = query.node->input(0);
  const int rank = x != nullptr && x->shape() ? x->shape()->rank() : 0;
  if (rank >= 3 && rank <= 5) return absl::OkStatus();
  return absl::UnimplementedError("oneDNN has one to three spatial axes");
}

dnnl::memory::desc PlainDesc(const dnnl::memory::dims& dims) {
  dnnl::memory::dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return {dims, dnnl::memory::data_type::f32, strides};
}

// A convolution of several taps over many channels is so much faster in oneDNN's own layouts that
// it pays to go there and back.
bool PrefersBlocks(const ConvPlan& plan) {
  constexpr int64_t kMinChannels = 16;
  return NumTaps(plan.window) > 1 && plan.channels >= kMinChannels;
}

// The same tensor in any layout.
dnnl::memory::desc AnyLayout(const dnnl::memory::desc& plain) {
  return {plain.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

// `from` in the layout of `desc`; itself if it has that.
dnnl::memory InLayout(dnnl::memory from, const dnnl::memory::desc& desc, const dnnl::engine& engine,
                      dnnl::stream& stream) {
  if (from.get_desc() == desc) return from;
  dnnl::memory to(desc, engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  return to;
}

// Some output channels of one image: all of a group, or of the only one.
struct ConvPart {
  int64_t image = 0;
  int64_t first = 0, count = 0;
};

// How a convolution is cut into parts, which follows from its sizes alone: by images, and by
// channels where images are few.
std::vector<ConvPart> CutConv(const ConvPlan& plan) {
  constexpr int64_t kManyImages = 8;
  constexpr int64_t kMinProducts = int64_t{1} << 22;
  constexpr int64_t kChannels = 32;  // whole vectors of any machine
  const bool grouped = plan.outputs > plan.group_outputs;
  const int64_t unit = grouped ? plan.group_outputs : kChannels;
  const int64_t unit_products =
      unit * plan.group_channels * NumTaps(plan.window) * NumOutputs(plan.window);
  const int64_t units = (kMinProducts + unit_products - 1) / std::max<int64_t>(unit_products, 1);
  const int64_t step = plan.images >= kManyImages ? plan.outputs : units * unit;
  std::vector<ConvPart> parts;
  for (int64_t image = 0; image < plan.images; ++image) {
    for (int64_t first = 0; first < plan.outputs; first += step) {
      parts.push_back({image, first, std::min(step, plan.outputs - first)});
    }
  }
  return parts;
}

struct ConvWindow {
  dnnl::memory::dims strides, dilations, pads, end_pads;
};

ConvWindow WindowOf(const ConvPlan& plan) {
  ConvWindow window;
  for (const WindowAxis& axis : plan.window) {
    window.strides.push_back(axis.stride);
    window.dilations.push_back(axis.dilation - 1);
    window.pads.push_back(axis.pad);
    // What the last window reads, which may be less than the pad.
    const int64_t reach = axis.Start(axis.output - 1) + (axis.kernel - 1) * axis.dilation + 1;
    window.end_pads.push_back(std::max<int64_t>(reach - axis.input, 0));
  }
  return window;
}

// A part's operands: dense, since the channels of an image and the weights of an output channel
// follow each other.
struct ConvOperands {
  dnnl::memory::desc x, w, bias, y;
  float *x_data, *w_data, *bias_data, *y_data;
};

ConvOperands OperandsOf(const KernelArgs& args, const ConvPlan& plan, const ConvPart& part) {
  const int64_t groups = plan.outputs > plan.group_outputs ? part.count / plan.group_outputs : 1;
  const int64_t first_channel = part.first / plan.group_outputs * plan.group_channels;
  dnnl::memory::dims x = args.input(0).dims, w = args.input(1).dims, y = args.output(0).dims;
  x[0] = y[0] = 1;
  x[1] = groups * plan.group_channels;
  w[0] = y[1] = part.count;
  if (groups > 1) {
    w[0] = plan.group_outputs;
    w.insert(w.begin(), groups);
  }
  ConvOperands operands{PlainDesc(x), PlainDesc(w), {},      PlainDesc(y),
                        nullptr,      nullptr,      nullptr, nullptr};
  operands.x_data = args.input(0).as<float>() +
                    (part.image * plan.channels + first_channel) * NumInputs(plan.window);
  operands.w_data =
      args.input(1).as<float>() + part.first * plan.group_channels * NumTaps(plan.window);
  operands.y_data = args.output(0).as<float>() +
                    (part.image * plan.outputs + part.first) * NumOutputs(plan.window);
  if (!args.input(2).present()) return operands;
  operands.bias = PlainDesc({part.count});
  operands.bias_data = args.input(2).as<float>() + part.first;
  return operands;
}

// oneDNN keeps recently used primitives itself.
void RunDnnl(const ConvOperands& part, const ConvWindow& window, bool blocks) {
  using dnnl::memory;
  const OneDnnOnThisThread alone;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  using Forward = dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto direct = dnnl::algorithm::convolution_direct;
  const bool has_bias = part.bias_data != nullptr;
  const memory::desc x = blocks ? AnyLayout(part.x) : part.x;
  const memory::desc w = blocks ? AnyLayout(part.w) : part.w;
  const memory::desc y = blocks ? AnyLayout(part.y) : part.y;
  const Forward::desc desc = has_bias
                                 ? Forward::desc(kind, direct, x, w, part.bias, y, window.strides,
                                                 window.dilations, window.pads, window.end_pads)
                                 : Forward::desc(kind, direct, x, w, y, window.strides,
                                                 window.dilations, window.pads, window.end_pads);
  const Forward::primitive_desc chosen(desc, engine);
  const memory source(part.x, engine, part.x_data), weights(part.w, engine, part.w_data);
  memory result(part.y, engine, part.y_data);
  const bool direct_result = chosen.dst_desc() == part.y;
  memory computed = direct_result ? result : memory(chosen.dst_desc(), engine);
  std::unordered_map<int, memory> memories = {
      {DNNL_ARG_SRC, InLayout(source, chosen.src_desc(), engine, stream)},
      {DNNL_ARG_WEIGHTS, InLayout(weights, chosen.weights_desc(), engine, stream)},
      {DNNL_ARG_DST, computed}};
  if (has_bias) memories.emplace(DNNL_ARG_BIAS, memory(part.bias, engine, part.bias_data));
  Forward(chosen).execute(stream, memories);
  if (!direct_result) dnnl::reorder(computed, result).execute(stream, computed, result);
  stream.wait();
}

absl::Status RunDnnlKernel(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 1));
  if (args.output(0).size() == 0) return absl::OkStatus();
  if (args.input(0).size() == 0 || args.input(1).size() == 0) return RunReference(args);
  const std::vector<ConvPart> parts = CutConv(plan);
  const ConvWindow window = WindowOf(plan);
  std::atomic<bool> ok = true;
  ParallelTasks(static_cast<int64_t>(parts.size()), [&](int64_t i) {
    try {
      RunDnnl(OperandsOf(args, plan, parts[i]), window, PrefersBlocks(plan));
    } catch (const dnnl::error& error) {  // a shape that it does not have
      ok = false;
    }
  });
  return ok ? absl::OkStatus() : RunReference(args);
}

}  // namespace

OpDef ConvDef() {
  return OpDef("", "Conv", 1)
      .Doc("Cross-correlation of X with the kernels of W, by groups of channels, and a bias.")
      .Input("X", "T", "[N, C, ...]")
      .Input("W", "T", "[M, C / group, ...]")
      .Input("B", "T", "[M]", PortKind::kOptional)
      .Output("Y", "T", "[N, M, ...]")
      .Attr("auto_pad", "NOTSET", "NOTSET, VALID, SAME_UPPER, SAME_LOWER")
      .Attr("dilations", {}, "distance of taps, by axis")
      .Attr("group", int64_t{1}, "groups of channels")
      .Attr("kernel_shape", {}, "that of W")
      .Attr("pads", {}, "zeros in front by axis, then behind")
      .Attr("strides", {}, "distance of windows, by axis")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferPlainConv)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "dnnl",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .supports = SupportsDnnl,
                  .run = RunDnnlKernel});
}

}  // namespace pagefuse::onnx_ops
