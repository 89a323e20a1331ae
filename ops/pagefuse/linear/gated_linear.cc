// SPDX-License-Identifier: Apache-2.0
// GatedLinear: activation(x * w_gate) * (x * w_up), the first half of a gated MLP.
#include "pagefuse/ops/pagefuse/linear/gated_linear.h"

#include <string>
#include <type_traits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kOut({{"y", "T", "[..., N]"}});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kXPort = kGatedIn["x"], kWGatePort = kGatedIn["w_gate"], kWUpPort = kGatedIn["w_up"];

// Both cut off at `limit`.
enum class Cut { kNone, kLimit };

// What differs from weight to weight: ports, lines in front, and the lines that define `gate` and `up`.
struct ProductsText {
  std::string ports, head, gate, up;
};

std::string BodyText(const ProductsText& products, Activation activation, Cut cut) {
  const bool cuts = cut == Cut::kLimit;
  const std::string limits =
      "  number = Constant <value_float: float = @limit> ()\n  limit = CastLike (number, x)\n"
      "  lowest = Neg (limit)\n";
  return StrCat("GatedLinear (", products.ports, ") => (y) {\n", products.head, cuts ? limits : "",
                products.gate, cuts ? "  gate_below = Min (gate, limit)\n" : "",
                GateText(activation, cuts ? "gate_below" : "gate", "activated"), products.up,
                cuts ? "  up_within = Clip (up, lowest, limit)\n" : "", "  y = Mul (activated, ",
                cuts ? "up_within" : "up", ")\n}");
}

// Of `x` and two matrices.
ProductsText MatricesText(const std::string& x, bool trans_b, const std::string& gate,
                          const std::string& up) {
  const std::string turned = StrCat("  gate_rows = Transpose <perm = [1, 0]> (", gate, ")\n",
                                    "  up_rows = Transpose <perm = [1, 0]> (", up, ")\n");
  return {.ports = "x, w_gate, w_up",
          .head = trans_b ? turned : "",
          .gate = StrCat("  gate = MatMul (", x, ", ", trans_b ? "gate_rows" : gate, ")\n"),
          .up = StrCat("  up = MatMul (", x, ", ", trans_b ? "up_rows" : up, ")\n")};
}

ProductsText Bf16Text(bool trans_b) {
  ProductsText text = MatricesText("rounded", trans_b, "wide_gate", "wide_up");
  text.head = StrCat(RoundedText("x"), "  wide_gate = Cast <to = 1> (w_gate)\n",
                     "  wide_up = Cast <to = 1> (w_up)\n", text.head);
  return text;
}

ProductsText CodesText(const microsoft_ops::NBitsSizes& s) {
  const auto product = [&](const std::string& y) {
    return StrCat("  ", y, " = com.microsoft.MatMulNBits <K = ", s.k, ", N = ", s.n,
                  ", bits = ", s.bits, ", block_size = ", s.block, "> (x, w_", y, ", ", y,
                  "_scales)\n");
  };
  return {.ports = "x, w_gate, w_up, gate_scales, up_scales",
          .head = "",
          .gate = product("gate"),
          .up = product("up")};
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Gate gate, GateOf(node));
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  const Cut cut = gate.limit == Gate::kNoLimit ? Cut::kNone : Cut::kLimit;
  switch (kGatePorts.KindAt(node)) {
    case WeightKind::kNumbers:
      return BodyText(MatricesText("x", trans_b != 0, "w_gate", "w_up"), gate.activation, cut);
    case WeightKind::kBf16:
      return BodyText(Bf16Text(trans_b != 0), gate.activation, cut);
    case WeightKind::kCodes:
      break;
  }
  PF_ASSIGN_OR_RETURN(const auto sizes, kGatePorts.CodeSizes(node));
  return BodyText(CodesText(sizes), gate.activation, cut);
}

absl::StatusOr<ProductSpec> SpecOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  return ProductSpec{.trans_b = trans_b != 0};
}

// Of numbers of the type of x, or of bfloat16 under floats.
template <typename T, typename W>
void ReferenceLoops(KernelArgs& args, const Gate& by, const ProductSpec& spec) {
  const ProductDims dims = DimsOf(spec, args.input(kXPort), args.input(kWGatePort));
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const int64_t column_step = spec.trans_b ? dims.k : 1, row_step = spec.trans_b ? 1 : dims.n;
  const T* x = args.input(kXPort).as<T>();
  T* y = args.output(0).as<T>();
  const auto dot = [&](int64_t row, int port, int64_t column) -> double {
    const W* w = args.input(port).as<W>() + column * column_step;
    if constexpr (std::is_same_v<T, W>) {
      return ReferenceDot(x + row * dims.k, 1, w, row_step, dims.k);
    } else {
      return Bf16ReferenceDot(x + row * dims.k, w, row_step, dims.k);
    }
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < dims.n; ++column) {
      const double gate = dot(row, kWGatePort, column), up = dot(row, kWUpPort, column);
      *y++ = static_cast<T>(static_cast<float>(ApplyGate(by, gate, up)));
    }
  }
}

absl::Status Reference(KernelArgs& args) {
  const WeightKind kind = kGatePorts.KindAt(*args.node);
  if (kind == WeightKind::kCodes) return RunGatedCodesReference(args);
  PF_ASSIGN_OR_RETURN(const Gate by, GateOf(*args.node));
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, SpecOf(*args.node));
  if (kind == WeightKind::kBf16) {
    ReferenceLoops<float, Bfloat16>(args, by, spec);
    return absl::OkStatus();
  }
  return DispatchFloat(args.input(kXPort).dtype,
                       [&]<typename T>() { ReferenceLoops<T, T>(args, by, spec); });
}

WeightView ViewOf(const float* data, const std::vector<int64_t>& dims, const ProductSpec& spec) {
  return {data, dims[spec.trans_b ? 1 : 0], dims[spec.trans_b ? 0 : 1], spec.trans_b};
}

absl::Status Linear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Gate by, GateOf(*args.node));
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, SpecOf(*args.node));
  const TensorArg& w = args.input(kGatedIn["w_gate"]);
  const ProductDims dims = DimsOf(spec, args.input(kGatedIn["x"]), w);
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const RowsView x{args.input(kGatedIn["x"]).as<float>(), rows, dims.k};
  const OutputView y{args.output(0).as<float>(), dims.n};
  const WeightView gate = ViewOf(w.as<float>(), w.dims, spec);
  const WeightView up = ViewOf(args.input(kGatedIn["w_up"]).as<float>(), w.dims, spec);
  void* scratch = args.scratch->Get(GatedLinearF32ScratchBytes(rows, gate));
  GatedLinearF32(x, {gate, up, by}, scratch, y);
  return absl::OkStatus();
}

constexpr WeightPorts kUpPorts{
    .x = kGatedIn["x"], .w = kGatedIn["w_up"], .scales = kGatedIn["up_scales"]};

auto Expecting(WeightKind kind) {
  return [kind](const KernelQuery& query) { return kGatePorts.Expect(query, kind); };
}

}  // namespace

OpDef GatedLinearDef() {
  OpDef op("pagefuse", "GatedLinear", /*since=*/1);
  op.Doc("activation(x * w_gate) * (x * w_up), the first half of a gated MLP, in one pass.")
      .Inputs(kGatedIn)
      .Outputs(kOut)
      .RequiredAttr("activation", "gelu_tanh is the tanh form")
      .OneOf({"gelu", "gelu_tanh", "silu"})
      .FlagAttr("transB", int64_t{0}, "1: weights are stored transposed; codes always are")
      .Attr("limit", 0.0f, "above 0: x * w_gate is cut off above it, x * w_up also below -limit")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Types("W", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes([](ShapeContext& c) { return kGatePorts.Check(c); })
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .supports = Expecting(WeightKind::kNumbers),
                  .run = Linear})
      .AddKernel(
          {.name = "bf16",
           .priority = 20,
           .supports = [](const KernelQuery& query) -> absl::Status {
             PF_ASSIGN_OR_RETURN(const int64_t trans_b, query.node->IntAttribute("transB", 0));
             PF_RETURN_IF_ERROR(kUpPorts.ExpectBf16Rows(query, trans_b));
             return kGatePorts.ExpectBf16Rows(query, trans_b);
           },
           .prepare =
               PackedConstants::Prepare({{kWGatePort, &kBf16Blocks}, {kWUpPort, &kBf16Blocks}}),
           .run = RunGatedBf16})
      .AddKernel({.name = "hwy",
                  .priority = 20,
                  .supports = Expecting(WeightKind::kCodes),
                  .run = RunGatedCodes})
      .AddKernel({.name = "int8",
                  .priority = 30,
                  .supports = [](const KernelQuery& query) -> absl::Status {
                    PF_RETURN_IF_ERROR(kUpPorts.ExpectInt8(query));
                    return kGatePorts.ExpectInt8(query);
                  },
                  .prepare = PrepareGatedInt8,
                  .run = RunGatedInt8});
  AddCodeAttributes(op, kGatePorts);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
