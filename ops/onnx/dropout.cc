// SPDX-License-Identifier: Apache-2.0
// Dropout, which does nothing to a model that is not trained; and SwiGLU.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

absl::Status InferDropout(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  for (int i : {1, 2}) PF_RETURN_IF_ERROR(ExpectOneElement(c, i));
  c.SetOutput(0, c.input_type(0), CopyOf(x));
  c.SetOutput(1, c.opset() < 10 ? c.input_type(0) : DataType::kBool, CopyOf(x));
  return absl::OkStatus();
}

// Training draws random numbers, unless it is known to drop nothing.
absl::Status ValidateDropout(const KernelArgs& args) {
  if (!args.input(2).present() || *args.input(2).as<uint8_t>() == 0) return absl::OkStatus();
  double ratio = 0.5;
  if (args.input(1).data != nullptr) {
    PF_RETURN_IF_ERROR(DecodeToDouble(args.input(1).dtype, args.input(1).data, 1, &ratio));
  }
  if (ratio == 0) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat(args.node->Description(),
             ": input 2 \"training_mode\": is true, and random numbers are not drawn"));
}

absl::Status RunDropout(KernelArgs& args) {
  const TensorArg& mask = args.output(1);
  if (mask.present() && mask.dtype == DataType::kBool) {
    std::fill_n(mask.as<uint8_t>(), mask.size(), uint8_t{1});
  } else if (mask.present()) {
    const std::vector<float> kept(static_cast<size_t>(mask.size()), 1.0f);
    PF_RETURN_IF_ERROR(EncodeFromFloat(mask.dtype, kept.data(), mask.size(), mask.data));
  }
  return CopyBytes(args);
}

}  // namespace

OpDef DropoutDef() {
  using Types = decltype(Join(Floats(), Float8s()));
  return OpDef("", "Dropout", 7)
      .Doc("The data itself, and a mask of what is kept: all. Training is not computed.")
      .Input("data", "T", "[...]")
      .Input("ratio", "T1", "[]", PortKind::kOptional)
      .Input("training_mode", "bool", "[]; must be false, or ratio 0", PortKind::kOptional)
      .Output("output", "T", "as data")
      .Output("mask", "TM", "as data; bool from opset 10 on, before as data", PortKind::kOptional)
      .Attr("ratio", 0.5f, "before opset 12")
      .Attr("seed", {}, "of the random numbers")
      .Types("T", TypesOf(Types()))
      .Types("T1", TypesOf(Types()))
      .Types("TM", TypesOf(decltype(Join(Types(), TypeList<bool>()))()))
      .InferShapes(InferDropout)
      .Validate(ValidateDropout)
      .AddKernel({.name = "reference", .run = RunDropout});
}

OpDef SwiGLUDef() {
  return OpDef("", "SwiGLU", 28)
      .Doc("a * sigmoid(alpha * a) * b.")
      .Input("a", "T", "[...]")
      .Input("b", "T", "[...], broadcast with a")
      .Output("y", "T", "the broadcast shape")
      .Attr("alpha", 1.0f, "factor inside the sigmoid")
      .Types("T", TypesOf(Floats()))
      .InferShapes([](ShapeContext& c) { return InferBroadcast(c); })
      .Decomposition(R"(
        SwiGLU (a, b) => (y) {
          gate = Swish <alpha = @alpha> (a)
          y = Mul (gate, b)
        })");
}

}  // namespace pagefuse::onnx_ops
