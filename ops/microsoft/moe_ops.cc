// SPDX-License-Identifier: Apache-2.0
// MoE and QMoE: a layer of experts with its routing, weights in floats or in 4 or 8 bits.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/microsoft/moe.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// Where the inputs of products 0 (fc1), 1 (fc2) and 2 (fc3) are.
struct Ports {
  int weights[3];
  int scales[3];
  int biases[3];
  int zeros[3];
  int router_weights;
};
constexpr Ports kMoePorts = {{2, 4, 6}, {-1, -1, -1}, {3, 5, 7}, {-1, -1, -1}, -1};
constexpr Ports kQMoePorts = {{2, 5, 8}, {3, 6, 9}, {4, 7, 10}, {11, 12, 13}, 14};

struct Quantisation {
  int64_t bits = 0;   // 0: floats
  int64_t block = 0;  // 0: a scale a row
};

absl::StatusOr<Quantisation> QuantisationOf(const Node& node, const Ports& ports) {
  Quantisation q;
  if (ports.scales[0] < 0) return q;
  PF_ASSIGN_OR_RETURN(q.bits, node.IntAttribute("expert_weight_bits", 4));
  PF_ASSIGN_OR_RETURN(q.block, node.IntAttribute("block_size", 0));
  return q;
}

// Experts and hidden and inner size, symbolically.
struct Sizes {
  Dim tokens, hidden, experts, inter;
};

Dim Times(const Dim& dim, int64_t factor) { return dim * Dim(factor); }

// Of the weights of a product.
struct WeightSizes {
  Dim experts, n, k;
};

absl::Status CheckProduct(const ShapeContext& c, const Ports& ports, const Quantisation& q, int p,
                          const WeightSizes& sizes) {
  const auto& [experts, n, k] = sizes;
  const int64_t per_byte = q.bits == 4 ? 2 : 1;
  PF_RETURN_IF_ERROR(ExpectShape(
      c, ports.weights[p], Shape({experts, n, per_byte == 2 ? (k + Dim(1)).FloorDiv(Dim(2)) : k})));
  PF_RETURN_IF_ERROR(ExpectShape(c, ports.biases[p], Shape({experts, n})));
  if (ports.scales[p] < 0 || !c.has_input(ports.weights[p])) return absl::OkStatus();
  if (!c.has_input(ports.scales[p])) {
    return c.InputError(ports.weights[p], "comes without its scales");
  }
  const Dim blocks = q.block == 0 ? Dim(1) : (k + Dim(q.block - 1)).FloorDiv(Dim(q.block));
  const Shape* scales = c.input_shape(ports.scales[p]);
  const bool by_row = q.block == 0 && scales != nullptr && scales->rank() == 2;
  PF_RETURN_IF_ERROR(
      ExpectShape(c, ports.scales[p], by_row ? Shape({experts, n}) : Shape({experts, n, blocks})));
  const Shape* zeros = c.input_shape(ports.zeros[p]);
  if (zeros == nullptr) return absl::OkStatus();
  const Dim packed = per_byte == 2 ? (blocks + Dim(1)).FloorDiv(Dim(2)) : blocks;
  const bool flat = q.block == 0 && zeros->rank() == 2;
  return ExpectShape(c, ports.zeros[p], flat ? Shape({experts, n}) : Shape({experts, n, packed}));
}

absl::StatusOr<Sizes> SizesOf(const ShapeContext& c, const Ports& ports, const Quantisation& q) {
  const Shape* x = c.input_shape(0);
  const Shape* fc1 = c.input_shape(ports.weights[0]);
  const Shape* fc2 = c.input_shape(ports.weights[1]);
  if (x->rank() != 2 && x->rank() != 3) {
    return c.InputError(0, StrCat("expected rank 2 or 3, got ", x->ToString()));
  }
  for (int p = 0; p < 2; ++p) {
    const Shape* weights = c.input_shape(ports.weights[p]);
    if (weights == nullptr || weights->rank() == 3) continue;
    return c.InputError(ports.weights[p], StrCat("expected rank 3, got ", weights->ToString()));
  }
  Sizes sizes;
  sizes.tokens = x->rank() == 2 ? (*x)[0] : (*x)[0] * (*x)[1];
  sizes.hidden = x->back(0);
  if (fc1 != nullptr) sizes.experts = (*fc1)[0];
  if (fc2 != nullptr) sizes.inter = q.bits == 4 ? Times((*fc2)[2], 2) : (*fc2)[2];
  return sizes;
}

absl::Status CheckQuantisation(const ShapeContext& c, const Ports& ports, const Quantisation& q) {
  if (ports.scales[0] < 0) return absl::OkStatus();
  if (q.bits != 4 && q.bits != 8) {
    return c.AttributeError("expert_weight_bits", StrCat("expected 4 or 8, got ", q.bits));
  }
  if (q.block == 0 || (q.block >= 16 && (q.block & (q.block - 1)) == 0)) return absl::OkStatus();
  return c.AttributeError("block_size",
                          StrCat("expected 0 or a power of two from 16 on, got ", q.block));
}

absl::Status InferMoe(ShapeContext& c, const Ports& ports) {
  PF_ASSIGN_OR_RETURN(const MoeAttributes a, MoeAttributesOf(c.node()));
  PF_ASSIGN_OR_RETURN(const Quantisation q, QuantisationOf(c.node(), ports));
  PF_RETURN_IF_ERROR(CheckQuantisation(c, ports, q));
  const Shape* x = c.input_shape(0);
  c.SetOutput(0, c.input_type(0), CopyOf(x));
  const bool has_fc3 = c.has_input(ports.weights[2]);
  const bool needs_fc3 = a.activation == MoeActivation::kSwiglu && a.fusion == SwigluFusion::kNone;
  if (needs_fc3 && !has_fc3) return c.Error("swiglu without fusion needs fc3");
  if (has_fc3 && Fc1Columns(a, 1) == 2) return c.Error("fused swiglu takes no fc3");
  if (x == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, ports, q));
  if (s.experts.constant() && a.k > *s.experts.constant()) {
    return c.AttributeError("k", StrCat("expected at most ", *s.experts.constant(), ", got ", a.k));
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, 1, Shape({s.tokens, s.experts})));
  if (ports.router_weights >= 0) {
    PF_RETURN_IF_ERROR(ExpectShape(c, ports.router_weights, Shape({s.tokens, s.experts})));
  }
  const Dim fc1 = Times(s.inter, Fc1Columns(a, 1));
  PF_RETURN_IF_ERROR(CheckProduct(c, ports, q, 0, {s.experts, fc1, s.hidden}));
  PF_RETURN_IF_ERROR(CheckProduct(c, ports, q, 1, {s.experts, s.hidden, s.inter}));
  return CheckProduct(c, ports, q, 2, {s.experts, s.inter, s.hidden});
}

// Sizes, routing and biases; weights are the caller's.
absl::StatusOr<Moe> MoeOf(const KernelArgs& args, const Ports& ports) {
  Moe moe;
  PF_ASSIGN_OR_RETURN(moe.attributes, MoeAttributesOf(*args.node));
  PF_ASSIGN_OR_RETURN(const Quantisation q, QuantisationOf(*args.node, ports));
  const std::vector<int64_t>& fc2 = args.input(ports.weights[1]).dims;
  moe.hidden = args.input(0).dims.back();
  moe.tokens = args.input(1).dims[0];
  moe.experts = fc2[0];
  moe.inter = fc2[2] * (q.bits == 4 ? 2 : 1);
  moe.has_fc3 = args.input(ports.weights[2]).present();
  PF_ASSIGN_OR_RETURN(moe.x, FloatValues::Of(args.input(0)));
  PF_ASSIGN_OR_RETURN(moe.router, FloatValues::Of(args.input(1)));
  if (ports.router_weights >= 0) {
    PF_ASSIGN_OR_RETURN(moe.router_weights, FloatValues::Of(args.input(ports.router_weights)));
  }
  for (int p = 0; p < 3; ++p) {
    PF_ASSIGN_OR_RETURN(moe.biases[p], FloatValues::Of(args.input(ports.biases[p])));
  }
  return moe;
}

template <bool reference>
absl::Status Run(const Moe& moe, KernelArgs& args) {
  if (moe.tokens == 0) return absl::OkStatus();
  if (reference) return RunMoeReference(moe, args.output(0));
  return RunMoeGrouped(moe, args.output(0), *args.scratch);
}

template <bool reference>
absl::Status RunMoe(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(Moe moe, MoeOf(args, kMoePorts));
  FloatValues weights[3];
  for (int p = 0; p < 3; ++p) {
    PF_ASSIGN_OR_RETURN(weights[p], FloatValues::Of(args.input(kMoePorts.weights[p])));
  }
  const auto matrix = [&](int p, int64_t expert) {
    const int64_t k = p == 1 ? moe.inter : moe.hidden;
    const int64_t n = moe.columns(p);
    return WeightView{weights[p].data() + expert * n * k, k, n, /*transposed=*/true};
  };
  moe.element = [&](int p, int64_t expert, int64_t n, int64_t k) -> double {
    const WeightView w = matrix(p, expert);
    return w.data[n * w.k + k];
  };
  moe.product = [&](int p, int64_t expert, const RowsView& x, const OutputView& y,
                    Scratch& scratch) {
    const WeightView w = matrix(p, expert);
    LinearF32(x, w, scratch.Get(LinearF32ScratchBytes(x.m, w)), y);
    return absl::OkStatus();
  };
  return Run<reference>(moe, args);
}

template <bool reference>
absl::Status RunQMoe(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(Moe moe, MoeOf(args, kQMoePorts));
  moe.weights = MoeWeights::kSoftmaxOfChosen;
  PF_ASSIGN_OR_RETURN(const Quantisation q, QuantisationOf(*args.node, kQMoePorts));
  NBitsParameters parameters[3];
  for (int p = 0; p < (moe.has_fc3 ? 3 : 2); ++p) {
    PF_ASSIGN_OR_RETURN(parameters[p], NBitsParameters::Of(args.input(kQMoePorts.scales[p]),
                                                           args.input(kQMoePorts.zeros[p])));
  }
  const auto matrix = [&](int p, int64_t expert) {
    NBitsWeight w;
    w.bits = static_cast<int>(q.bits);
    w.k = p == 1 ? moe.inter : moe.hidden;
    w.n = moe.columns(p);
    w.block = q.block == 0 ? w.k : q.block;
    w.row_bytes = (w.k * q.bits + 7) / 8;
    w.zero_row_bytes = (w.blocks() * q.bits + 7) / 8;
    w.codes = args.input(kQMoePorts.weights[p]).as<uint8_t>() + expert * w.n * w.row_bytes;
    w.scales = parameters[p].scales.data() + expert * w.n * w.blocks();
    if (parameters[p].zero_codes != nullptr) {
      w.zero_codes = parameters[p].zero_codes + expert * w.n * w.zero_row_bytes;
    }
    return w;
  };
  moe.element = [&](int p, int64_t expert, int64_t n, int64_t k) -> double {
    const NBitsWeight w = matrix(p, expert);
    const int64_t b = k / w.block;
    return (static_cast<double>(w.Code(n, k)) - w.Zero(n, b)) * w.scales[n * w.blocks() + b];
  };
  moe.product = [&](int p, int64_t expert, const RowsView& x, const OutputView& y,
                    Scratch& scratch) {
    const NBitsWeight w = matrix(p, expert);
    return LinearNBits(x, w, NBitsPrecision::kFloat32, scratch.Get(NBitsScratchBytes(x.m, w)), y);
  };
  return Run<reference>(moe, args);
}

void AddAttributes(OpDef& op) {
  op.Attr("k", int64_t{1}, "experts a token")
      .Attr("activation_type", std::string("relu"), "relu, gelu, silu, identity or swiglu")
      .FlagAttr("normalize_routing_weights", int64_t{0}, "1: the weights of a token sum to 1")
      .Attr("use_sparse_mixer", int64_t{0}, "only 0")
      .Attr("swiglu_fusion", int64_t{0},
            "0: gate from fc1, linear part from fc3; 1: fc1's columns in turn; 2: fc1's halves")
      .Attr("swiglu_limit", {}, "upper limit of the gate, limit of the linear part; absent: none")
      .Attr("activation_alpha", 1.0f, "swiglu: g * sigmoid(alpha * g) * (l + beta)")
      .Attr("activation_beta", 0.0f, "swiglu: see alpha");
}

}  // namespace

OpDef MoEDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  OpDef op("com.microsoft", "MoE", /*since=*/1);
  op.Doc(
        "Each token through its k experts: fc2(act(fc1(x)) [* fc3(x)]), summed by the softmax of "
        "router_probs.")
      .Input("input", "T", "[T, N] or [B, S, N]")
      .Input("router_probs", "T", "[T, E]: logits")
      .Input("fc1_experts_weights", "T", "[E, I, N]; [E, 2 I, N] for fused swiglu")
      .Input("fc1_experts_bias", "T", "[E, I] or [E, 2 I]", kOptional)
      .Input("fc2_experts_weights", "T", "[E, N, I]")
      .Input("fc2_experts_bias", "T", "[E, N]", kOptional)
      .Input("fc3_experts_weights", "T", "[E, I, N]", kOptional)
      .Input("fc3_experts_bias", "T", "[E, I]", kOptional)
      .Output("output", "T", "as input");
  AddAttributes(op);
  return op.Types("T", {kFloat, kFloat16, kBfloat16})
      .InferShapes([](ShapeContext& c) { return InferMoe(c, kMoePorts); })
      .AddKernel({.name = "reference", .run = RunMoe<true>})
      .AddKernel({.name = "grouped", .priority = 10, .run = RunMoe<false>});
}

OpDef QMoEDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  OpDef op("com.microsoft", "QMoE", /*since=*/1);
  op.Doc(
        "MoE with expert weights of 4 or 8 bits, as MatMulNBits has them; weights are the softmax "
        "of the chosen logits, or those of router_weights.")
      .Input("input", "T", "[T, N] or [B, S, N]")
      .Input("router_probs", "T", "[T, E]: logits")
      .Input("fc1_experts_weights", "uint8", "[E, I, N * bits / 8]; 2 I for fused swiglu")
      .Input("fc1_scales", "T2", "[E, I], or [E, I, blocks]", kOptional)
      .Input("fc1_experts_bias", "T", "[E, I]", kOptional)
      .Input("fc2_experts_weights", "uint8", "[E, N, I * bits / 8]")
      .Input("fc2_scales", "T2", "[E, N], or [E, N, blocks]", kOptional)
      .Input("fc2_experts_bias", "T", "[E, N]", kOptional)
      .Input("fc3_experts_weights", "uint8", "[E, I, N * bits / 8]", kOptional)
      .Input("fc3_scales", "T2", "[E, I], or [E, I, blocks]", kOptional)
      .Input("fc3_experts_bias", "T", "[E, I]", kOptional)
      .Input("fc1_zero_points", "uint8", "packed as the weights; absent: 2^(bits - 1)", kOptional)
      .Input("fc2_zero_points", "uint8", "as fc1_zero_points", kOptional)
      .Input("fc3_zero_points", "uint8", "as fc1_zero_points", kOptional)
      .Input("router_weights", "T", "[T, E]: weights of the chosen experts", kOptional)
      .Output("output", "T", "as input");
  AddAttributes(op);
  return op.Attr("expert_weight_bits", int64_t{4}, "4 or 8")
      .Attr("block_size", int64_t{0}, "elements that share a scale, 0: a row")
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("T2", {kFloat, kFloat16, kBfloat16})
      .InferShapes([](ShapeContext& c) { return InferMoe(c, kQMoePorts); })
      .AddKernel({.name = "reference", .run = RunQMoe<true>})
      .AddKernel({.name = "grouped", .priority = 10, .run = RunQMoe<false>});
}

}  // namespace pagefuse::microsoft_ops
