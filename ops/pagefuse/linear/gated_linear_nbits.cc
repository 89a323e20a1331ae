// GatedLinearNBits: GatedLinear with weights of 4 or 8 bits, as MatMulNBits has them.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsParameters;
using microsoft_ops::NBitsSizes;

constexpr Ports kIn({
    {"x", "T", "[..., K]"},
    {"gate", "uint8", "[N, blocks, block_size * bits / 8]"},
    {"gate_scales", "T", "[N, blocks]"},
    {"up", "uint8", "[N, blocks, block_size * bits / 8]"},
    {"up_scales", "T", "[N, blocks]"},
});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(c.node()));
  PF_RETURN_IF_ERROR(s.Check(c));
  for (const int codes : {kIn["gate"], kIn["up"]}) {
    PF_RETURN_IF_ERROR(microsoft_ops::CheckCount(c, codes, s.n * s.blocks() * s.block_bytes(),
                                                 "[N, blocks, block_size * bits / 8]"));
  }
  for (const int scales : {kIn["gate_scales"], kIn["up_scales"]}) {
    PF_RETURN_IF_ERROR(microsoft_ops::CheckCount(c, scales, s.n * s.blocks(), "[N, blocks]"));
  }
  const Shape* x = c.input_shape(kIn["x"]);
  std::optional<Shape> y;
  if (x != nullptr) {
    y = *x;
    y->dims().back() = Dim(s.n);
  }
  c.SetOutput(0, c.input_type(kIn["x"]), y);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Gate gate, GateOf(node));
  const bool cuts = gate.limit != Gate::kNoLimit;
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(node));
  const auto product = [&](const std::string& y, const std::string& w) {
    return StrCat("  ", y, " = com.microsoft.MatMulNBits <K = ", s.k, ", N = ", s.n,
                  ", bits = ", s.bits, ", block_size = ", s.block, "> (x, ", w, ", ", w,
                  "_scales)\n");
  };
  return StrCat(
      "GatedLinearNBits (x, gate, gate_scales, up, up_scales) => (y) {\n",
      cuts ? "  limit = Constant <value_float: float = @limit> ()\n  lowest = Neg (limit)\n" : "",
      product("gated", "gate"), cuts ? "  gate_below = Min (gated, limit)\n" : "",
      GateText(gate.activation, cuts ? "gate_below" : "gated", "activated"), product("upped", "up"),
      cuts ? "  up_within = Clip (upped, lowest, limit)\n" : "", "  y = Mul (activated, ",
      cuts ? "up_within" : "upped", ")\n}");
}

// What one call computes from.
struct Call {
  Gate by = Activation::kSilu;
  RowsView x;
  NBitsWeight gate, up;
  OutputView y;
};

// Of the kernel that rounds x.
class HalfScaleState : public KernelState {
 public:
  std::vector<Float16> gate, up;
  int64_t packed_bytes() const override {
    return static_cast<int64_t>((gate.size() + up.size()) * sizeof(Float16));
  }
};

absl::StatusOr<std::unique_ptr<KernelState>> PrepareInt8(const PrepareArgs& args) {
  auto state = std::make_unique<HalfScaleState>();
  const auto halves = [&](int port) {
    return microsoft_ops::ConstantHalfScales(args.constants[port]);
  };
  PF_ASSIGN_OR_RETURN(state->gate, halves(kIn["gate_scales"]));
  PF_ASSIGN_OR_RETURN(state->up, halves(kIn["up_scales"]));
  return state;
}

absl::StatusOr<Call> CallOf(KernelArgs& args) {
  Call call;
  PF_ASSIGN_OR_RETURN(call.by, GateOf(*args.node));
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*args.node));
  const TensorArg& x = args.input(kIn["x"]);
  call.x = {x.as<float>(), x.size() / s.k, s.k};
  // The scales are float: the parameters refer to them.
  const auto weight = [&](int codes, int scales) -> absl::StatusOr<NBitsWeight> {
    PF_ASSIGN_OR_RETURN(const NBitsParameters parameters,
                        NBitsParameters::Of(args.input(scales), {}));
    return s.Weight(args.input(codes).as<uint8_t>(), parameters);
  };
  PF_ASSIGN_OR_RETURN(call.gate, weight(kIn["gate"], kIn["gate_scales"]));
  PF_ASSIGN_OR_RETURN(call.up, weight(kIn["up"], kIn["up_scales"]));
  call.y = {args.output(0).as<float>(), s.n};
  return call;
}

double DotInDouble(const float* x, const NBitsWeight& w, int64_t row) {
  double sum = 0;
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t b = k / w.block;
    sum += (static_cast<double>(w.Code(row, k)) - w.Zero(row, b)) * w.scales[row * w.blocks() + b] *
           x[k];
  }
  return sum;
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  for (int64_t r = 0; r < call.x.m; ++r) {
    const float* x = call.x.data + r * call.x.stride;
    for (int64_t n = 0; n < call.gate.n; ++n) {
      const double gate = DotInDouble(x, call.gate, n), up = DotInDouble(x, call.up, n);
      call.y.data[r * call.y.stride + n] = static_cast<float>(ApplyGate(call.by, gate, up));
    }
  }
  return absl::OkStatus();
}

absl::Status RunFloat(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  const int64_t n = call.gate.n;
  void* scratch = args.scratch->Get(NBitsScratchBytes(call.x.m, call.gate));
  const size_t up_bytes = static_cast<size_t>(call.x.m * n) * sizeof(float);
  auto* up = static_cast<float*>(args.scratch->Get(up_bytes, 1));
  constexpr auto kPrecision = NBitsPrecision::kFloat32;
  PF_RETURN_IF_ERROR(LinearNBits(call.x, call.gate, kPrecision, scratch, call.y));
  PF_RETURN_IF_ERROR(LinearNBits(call.x, call.up, kPrecision, scratch, {up, n}));
  for (int64_t r = 0; r < call.x.m; ++r) {
    float* y = call.y.data + r * call.y.stride;
    GatedProduct(call.by, y, up + r * n, n, y);
  }
  return absl::OkStatus();
}

absl::Status RunInt8(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(Call call, CallOf(args));
  const auto& state = static_cast<const HalfScaleState&>(*args.state);
  if (!state.gate.empty()) call.gate.half_scales = state.gate.data();
  if (!state.up.empty()) call.up.half_scales = state.up.data();
  void* scratch = args.scratch->Get(NBitsInt8ScratchBytes(call.x.m, call.gate));
  GatedLinearNBitsInt8(call.x, {call.gate, call.up, call.by}, scratch, call.y);
  return absl::OkStatus();
}

}  // namespace

OpDef GatedLinearNBitsDef() {
  return OpDef("pagefuse", "GatedLinearNBits", /*since=*/1)
      .Doc(
          "activation(x * gate^T) * (x * up^T) in one pass, with weights as com.microsoft."
          "MatMulNBits has them, without zero points: (code - 2^(bits - 1)) * scale.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("activation", "gelu_tanh is the tanh form")
      .OneOf({"gelu", "gelu_tanh", "silu"})
      .Attr("limit", 0.0f, "above 0: x * gate^T is cut off above it, x * up^T also below -limit")
      .RequiredAttr("K", "columns of both weights")
      .RequiredAttr("N", "rows of both weights")
      .Attr("bits", int64_t{4}, "4 or 8")
      .RequiredAttr("block_size", "a power of two from 16 on")
      .Attr("accuracy_level", int64_t{0}, microsoft_ops::kAccuracyLevelDoc)
      .Types("T", {DataType::kFloat})
      .InferShapes(Infer)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunFloat})
      .AddKernel({.name = "int8",
                  .priority = 20,
                  .supports = microsoft_ops::SupportsInt8,
                  .prepare = PrepareInt8,
                  .run = RunInt8});
}

}  // namespace pagefuse::pagefuse_ops
