// SPDX-License-Identifier: Apache-2.0
// CausalConvWithState: a convolution along time, one kernel a channel, that carries its last inputs
// from call to call.
#include <cstdint>
#include <string>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/unary_math.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

absl::StatusOr<bool> UsesSilu(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string activation, node.StringAttribute("activation", "none"));
  if (activation == "silu" || activation == "swish") return true;
  if (activation == "none") return false;
  return AttributeError(node, "activation",
                        StrCat("expected none, silu or swish, got \"", activation, "\""));
}

absl::Status InferCausalConv(ShapeContext& c) {
  PF_RETURN_IF_ERROR(UsesSilu(c.node()).status());
  const Shape* x = c.input_shape(0);
  const Shape* w = c.input_shape(1);
  if (x != nullptr && x->rank() != 3) {
    return c.InputError(0, StrCat("expected rank 3, got shape ", x->ToString()));
  }
  if (w != nullptr && (w->rank() != 3 || (*w)[2] == Dim(0))) {
    return c.InputError(1, StrCat("expected shape [C, 1, K], got ", w->ToString()));
  }
  const Dim batch = x != nullptr ? (*x)[0] : Dim();
  const Dim channels = x != nullptr ? (*x)[1] : Dim();
  const Dim kernel = w != nullptr ? (*w)[2] : Dim();
  const Dim kept = kernel.known() ? kernel - Dim(1) : Dim();
  PF_RETURN_IF_ERROR(ExpectShape(c, 1, {channels, Dim(1), kernel}));
  PF_RETURN_IF_ERROR(ExpectShape(c, 2, {channels}));
  PF_RETURN_IF_ERROR(ExpectShape(c, 3, {batch, channels, kept}));
  c.SetOutput(0, c.input_type(0), CopyOf(x));
  c.SetOutput(1, c.input_type(0), Shape({batch, channels, kept}));
  return absl::OkStatus();
}

// One channel of one sequence: the inputs kept from before (null: zeros), then the new ones.
template <typename T>
struct Channel {
  const T* past;
  const T* input;
  int64_t kept, length;

  Compute<T> At(int64_t i) const {  // i counts from the first that is kept
    if (i >= kept) return Load(input[i - kept]);
    return past == nullptr ? Compute<T>{0} : Load(past[i]);
  }
  // sum + the kernel w over the inputs from i on.
  double AddTaps(double sum, const T* w, int64_t i) const {
    for (int64_t k = 0; k < kept + 1; ++k) {
      sum += static_cast<double>(Load(w[k])) * static_cast<double>(At(i + k));
    }
    return sum;
  }
};

template <typename T>
void RunTyped(const KernelArgs& args, bool silu) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  const int64_t channels = dims[1], length = dims[2];
  const int64_t taps = args.input(1).dims[2];
  const T* bias = args.input(2).as<T>();
  ParallelFor(dims[0] * channels, length * taps + 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* w = args.input(1).as<T>() + n % channels * taps;
      const T* past = args.input(3).as<T>();
      const Channel<T> x{past == nullptr ? nullptr : past + n * (taps - 1),
                         args.input(0).as<T>() + n * length, taps - 1, length};
      for (int64_t t = 0; t < length; ++t) {
        const double start = bias == nullptr ? 0 : static_cast<double>(Load(bias[n % channels]));
        double sum = x.AddTaps(start, w, t);
        if (silu) sum = kSwish(sum, UnaryParams{.alpha = 1});
        args.output(0).as<T>()[n * length + t] = Store<T>(static_cast<Compute<T>>(sum));
      }
      if (!args.output(1).present()) continue;
      T* kept = args.output(1).as<T>() + n * (taps - 1);
      for (int64_t k = 0; k < taps - 1; ++k) kept[k] = Store<T>(x.At(length + k));
    }
  });
}

absl::Status RunCausalConv(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const bool silu, UsesSilu(*args.node));
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() { RunTyped<T>(args, silu); });
}

}  // namespace

OpDef CausalConvWithStateDef() {
  return OpDef("", "CausalConvWithState", 27)
      .Doc(
          "Each output is the kernel of its channel over the last K inputs, past ones included; "
          "the last K - 1 inputs are the state of the next call.")
      .Input("input", "T", "[B, C, L]")
      .Input("weight", "T", "[C, 1, K]")
      .Input("bias", "T", "[C]", PortKind::kOptional)
      .Input("past_state", "T", "[B, C, K - 1]; zeros if omitted", PortKind::kOptional)
      .Output("output", "T", "[B, C, L]")
      .Output("present_state", "T", "[B, C, K - 1]", PortKind::kOptional)
      .Attr("activation", "none", "none, silu or swish, which is silu")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferCausalConv)
      .AddKernel({.name = "reference", .run = RunCausalConv});
}

}  // namespace pagefuse::onnx_ops
