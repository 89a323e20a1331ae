// GatedLinear: activation(x * w_gate) * (x * w_up), the first half of a gated MLP.
#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"x", "T", "[..., K]"},
    {"w_gate", "T", "[N, K] if transB, else [K, N]"},
    {"w_up", "T", "[N, K] if transB, else [K, N]"},
});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kXPort = kIn["x"], kWGatePort = kIn["w_gate"], kWUpPort = kIn["w_up"];

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Gate gate, GateOf(node));
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  const bool cuts = gate.limit != Gate::kNoLimit;
  const std::string turned =
      "  gate_rows = Transpose <perm = [1, 0]> (w_gate)\n"
      "  up_rows = Transpose <perm = [1, 0]> (w_up)\n";
  const std::string limits =
      "  number = Constant <value_float: float = @limit> ()\n  limit = CastLike (number, x)\n"
      "  lowest = Neg (limit)\n";
  return absl::StrCat("GatedLinear (x, w_gate, w_up) => (y) {\n", trans_b ? turned : "",
                      cuts ? limits : "", "  gate = MatMul (x, ", trans_b ? "gate_rows" : "w_gate",
                      ")\n", cuts ? "  gate_below = Min (gate, limit)\n" : "",
                      GateText(gate.activation, cuts ? "gate_below" : "gate", "activated"),
                      "  up = MatMul (x, ", trans_b ? "up_rows" : "w_up", ")\n",
                      cuts ? "  up_within = Clip (up, lowest, limit)\n" : "",
                      "  y = Mul (activated, ", cuts ? "up_within" : "up", ")\n}");
}

absl::StatusOr<ProductSpec> SpecOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  return ProductSpec{.trans_b = trans_b != 0};
}

template <typename T>
void ReferenceLoops(KernelArgs& args, const Gate& by, const ProductSpec& spec) {
  const ProductDims dims = DimsOf(spec, args.input(kXPort), args.input(kWGatePort));
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const int64_t column_step = spec.trans_b ? dims.k : 1, row_step = spec.trans_b ? 1 : dims.n;
  const T* x = args.input(kXPort).as<T>();
  const T* gate = args.input(kWGatePort).as<T>();
  const T* up = args.input(kWUpPort).as<T>();
  T* y = args.output(0).as<T>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < dims.n; ++column) {
      const int64_t at = column * column_step;
      const double g = ReferenceDot(x + row * dims.k, 1, gate + at, row_step, dims.k);
      const double u = ReferenceDot(x + row * dims.k, 1, up + at, row_step, dims.k);
      *y++ = static_cast<T>(static_cast<float>(ApplyGate(by, g, u)));
    }
  }
}

absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Gate by, GateOf(*args.node));
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, SpecOf(*args.node));
  return DispatchFloat(args.input(kIn["x"]).dtype,
                       [&]<typename T>() { ReferenceLoops<T>(args, by, spec); });
}

WeightView ViewOf(const float* data, const std::vector<int64_t>& dims, const ProductSpec& spec) {
  return {data, dims[spec.trans_b ? 1 : 0], dims[spec.trans_b ? 0 : 1], spec.trans_b};
}

absl::Status Linear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Gate by, GateOf(*args.node));
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, SpecOf(*args.node));
  const TensorArg& w = args.input(kIn["w_gate"]);
  const ProductDims dims = DimsOf(spec, args.input(kIn["x"]), w);
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const RowsView x{args.input(kIn["x"]).as<float>(), rows, dims.k};
  const OutputView y{args.output(0).as<float>(), dims.n};
  const WeightView gate = ViewOf(w.as<float>(), w.dims, spec);
  const WeightView up = ViewOf(args.input(kIn["w_up"]).as<float>(), w.dims, spec);
  void* scratch = args.scratch->Get(GatedLinearF32ScratchBytes(rows, gate));
  return GatedLinearF32(x, {gate, up, by}, scratch, y);
}

}  // namespace

OpDef GatedLinearDef() {
  return OpDef("pagefuse", "GatedLinear", /*since=*/1)
      .Doc("activation(x * w_gate) * (x * w_up), the first half of a gated MLP, in one pass.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("activation", "gelu_tanh is the tanh form")
      .OneOf({"gelu", "gelu_tanh", "silu"})
      .FlagAttr("transB", int64_t{0}, "1: weights are stored transposed")
      .Attr("limit", 0.0f, "above 0: x * w_gate is cut off above it, x * w_up also below -limit")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear", .dtypes = {DataType::kFloat}, .priority = 10, .run = Linear});
}

}  // namespace pagefuse::pagefuse_ops
