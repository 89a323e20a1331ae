// GatedLinearBf16: GatedLinear with weights of bfloat16 that lie as kernels read them.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({{"x", "T", "[..., K]"},
                     {"w", "bfloat16", "[column_blocks, 2, row_blocks, 16, 16, 2]"}});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(c.node()));
  PF_RETURN_IF_ERROR(ExpectShape(c, kIn["w"], Shape::FromInts(s.GatedDims())));
  SetRowsOutput(c, kIn["x"], s);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Gate gate, GateOf(node));
  const bool cuts = gate.limit != Gate::kNoLimit;
  return StrCat(
      "GatedLinearBf16 (x, w) => (y) {\n", RoundedText("x"), DecodedBf16Text(Bf16Lead::kGateAndUp),
      "  first = Constant <value_int: int = 0> ()\n  second = Constant <value_int: int = 1> ()\n",
      "  w_gate = Gather <axis = 0> (weight, first)\n",
      "  w_up = Gather <axis = 0> (weight, second)\n",
      cuts ? "  limit = Constant <value_float: float = @limit> ()\n  lowest = Neg (limit)\n" : "",
      "  gated = MatMul (rounded, w_gate)\n", cuts ? "  gate_below = Min (gated, limit)\n" : "",
      GateText(gate.activation, cuts ? "gate_below" : "gated", "activated"),
      "  upped = MatMul (rounded, w_up)\n",
      cuts ? "  up_within = Clip (upped, lowest, limit)\n" : "", "  y = Mul (activated, ",
      cuts ? "up_within" : "upped", ")\n}");
}

// What one call computes from.
struct Call {
  Gate by = Activation::kSilu;
  PackedBf16 weight;
  RowsView x;
  OutputView y;
};

absl::StatusOr<Call> CallOf(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(*args.node));
  PF_ASSIGN_OR_RETURN(const Gate by, GateOf(*args.node));
  const TensorArg& x = args.input(kIn["x"]);
  return Call{.by = by,
              .weight = PackedOf(Bf16WeightOf(args, kIn["w"]), s, /*matrices=*/2),
              .x = {x.as<float>(), x.size() / s.k, s.k},
              .y = {args.output(0).as<float>(), s.n}};
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  for (int64_t r = 0; r < call.x.m; ++r) {
    const float* x = call.x.data + r * call.x.stride;
    for (int64_t n = 0; n < call.weight.n(); ++n) {
      const double gate = Bf16ReferenceDot(x, call.weight, n, 0);
      const double up = Bf16ReferenceDot(x, call.weight, n, 1);
      call.y.data[r * call.y.stride + n] = static_cast<float>(ApplyGate(call.by, gate, up));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  void* scratch = args.scratch->Get(LinearBf16ScratchBytes(call.x.m, call.weight.k()));
  GatedLinearBf16(call.x, call.weight, call.by, scratch, call.y);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  return PrepareBf16Weight(args, kIn["w"]);
}

}  // namespace

OpDef GatedLinearBf16Def() {
  return OpDef("pagefuse", "GatedLinearBf16", /*since=*/1)
      .Doc(StrCat("activation(x * gate) * (x * up) in one pass, with x rounded to bfloat16: "
                  "products are exact, sums in float. ",
                  kBf16Doc, " Column blocks of gate and up alternate."))
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("activation", "gelu_tanh is the tanh form")
      .OneOf({"gelu", "gelu_tanh", "silu"})
      .Attr("limit", 0.0f, "above 0: x * gate is cut off above it, x * up also below -limit")
      .RequiredAttr("K", "rows of both matrices")
      .AtLeast(1)
      .RequiredAttr("N", "columns of both matrices")
      .AtLeast(1)
      .Types("T", {DataType::kFloat})
      .InferShapes(Infer)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "bf16", .priority = 10, .prepare = Prepare, .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
