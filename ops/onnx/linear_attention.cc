// SPDX-License-Identifier: Apache-2.0
// LinearAttention: attention through a state [dk, dv] that each token updates.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

enum Inputs { kQuery, kKey, kValue, kPast, kDecay, kBeta };

struct Problem {
  int64_t q_heads = 0, kv_heads = 0;
  bool decays = false;  // "gated", "gated_delta"
  bool delta = false;   // "delta", "gated_delta": v minus what the state holds at k
};

absl::StatusOr<Problem> ReadProblem(const Node& node) {
  Problem p;
  PF_ASSIGN_OR_RETURN(p.q_heads, node.IntAttribute("q_num_heads", 0));
  PF_ASSIGN_OR_RETURN(p.kv_heads, node.IntAttribute("kv_num_heads", 0));
  PF_ASSIGN_OR_RETURN(const std::string rule, node.StringAttribute("update_rule", "gated_delta"));
  p.decays = rule == "gated" || rule == "gated_delta";
  p.delta = rule == "delta" || rule == "gated_delta";
  if (!p.decays && !p.delta && rule != "linear") {
    return AttributeError(node, "update_rule", StrCat("\"", rule, "\" is not known"));
  }
  if (p.kv_heads < 1 || p.q_heads < 1 || p.q_heads % p.kv_heads != 0) {
    return NodeError(node,
                     StrCat(p.kv_heads, " heads of keys do not divide ", p.q_heads, " of queries"));
  }
  if (p.decays && node.input(kDecay) == nullptr)
    return NodeError(node, "input 4 \"decay\" is missing");
  if (p.delta && node.input(kBeta) == nullptr)
    return NodeError(node, "input 5 \"beta\" is missing");
  return p;
}

// The last dim of an input over a number of heads.
absl::StatusOr<Dim> HeadSize(const ShapeContext& c, int i, int64_t heads) {
  const Shape* shape = c.input_shape(i);
  if (shape == nullptr) return Dim();
  if (shape->rank() != 3) {
    return c.InputError(i, StrCat("expected rank 3, got shape ", shape->ToString()));
  }
  const Dim& packed = shape->back(0);
  if (packed.is_constant() && *packed.constant() % heads != 0) {
    return c.InputError(
        i, StrCat("expected a last dim of ", heads, " heads, got shape ", shape->ToString()));
  }
  return packed.known() ? packed.FloorDiv(Dim(heads)) : Dim();
}

// Input i must be [B, T, one of `last`].
absl::Status CheckPacked(const ShapeContext& c, int i, const std::vector<Dim>& last) {
  const Shape* shape = c.input_shape(i);
  const Shape* query = c.input_shape(kQuery);
  if (shape == nullptr || query == nullptr) return absl::OkStatus();
  bool fits =
      shape->rank() == 3 && !Differ((*shape)[0], (*query)[0]) && !Differ((*shape)[1], (*query)[1]);
  bool last_fits = false;
  for (const Dim& dim : last) last_fits = last_fits || (fits && !Differ((*shape)[2], dim));
  if (last_fits) return absl::OkStatus();
  return c.InputError(
      i, StrCat("shape ", shape->ToString(), " does not fit a query of ", query->ToString()));
}

absl::Status InferLinearAttention(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Problem p, ReadProblem(c.node()));
  PF_ASSIGN_OR_RETURN(const Dim dk, HeadSize(c, kQuery, p.q_heads));
  PF_ASSIGN_OR_RETURN(const Dim dv, HeadSize(c, kValue, p.kv_heads));
  PF_RETURN_IF_ERROR(CheckPacked(c, kKey, {dk * Dim(p.kv_heads)}));
  PF_RETURN_IF_ERROR(CheckPacked(c, kValue, {dv * Dim(p.kv_heads)}));
  PF_RETURN_IF_ERROR(CheckPacked(c, kDecay, {Dim(p.kv_heads), dk * Dim(p.kv_heads)}));
  PF_RETURN_IF_ERROR(CheckPacked(c, kBeta, {Dim(p.kv_heads), Dim(1)}));
  const Shape* query = c.input_shape(kQuery);
  std::optional<Shape> output, state;
  if (query != nullptr) {
    output = Shape({(*query)[0], (*query)[1], dv * Dim(p.q_heads)});
    state = Shape({(*query)[0], Dim(p.kv_heads), dk, dv});
    PF_RETURN_IF_ERROR(ExpectShape(c, kPast, *state));
  }
  c.SetOutput(0, c.input_type(kQuery), std::move(output));
  c.SetOutput(1, c.has_input(kPast) ? c.input_type(kPast) : c.input_type(kQuery), std::move(state));
  return absl::OkStatus();
}

using Doubles = std::vector<double>;

// Inputs as doubles, and the sizes of the problem.
struct Call {
  Problem p;
  int64_t batch = 0, tokens = 0, dk = 0, dv = 0;
  double scale = 1;
  Doubles in[6];

  int64_t rows() const { return batch * tokens; }
  // Head `h` of row `row` of a packed input with `heads` heads of `size` elements.
  const double* Row(int i, int64_t row, int64_t h, int64_t heads, int64_t size) const {
    return in[i].data() + (row * heads + h) * size;
  }
};

absl::StatusOr<Call> ReadCall(const KernelArgs& args) {
  Call call;
  PF_ASSIGN_OR_RETURN(call.p, ReadProblem(*args.node));
  for (int i = 0; i < 6; ++i) {
    PF_ASSIGN_OR_RETURN(call.in[i], DecodedDoubles(args.input(i)));
  }
  call.batch = args.input(kQuery).dims[0];
  call.tokens = args.input(kQuery).dims[1];
  call.dk = args.input(kQuery).dims[2] / call.p.q_heads;
  call.dv = args.input(kValue).dims[2] / call.p.kv_heads;
  PF_ASSIGN_OR_RETURN(const float scale, args.node->FloatAttribute("scale", 0.0f));
  call.scale = scale != 0 ? static_cast<double>(scale)
                          : 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(call.dk, 1)));
  return call;
}

// One token: S = decay(S) + k (x) u, where u is v, or beta * (v - S^T k).
void Update(const Call& call, int64_t row, int64_t h, double* state) {
  const int64_t heads = call.p.kv_heads;
  const double* k = call.Row(kKey, row, h, heads, call.dk);
  const double* v = call.Row(kValue, row, h, heads, call.dv);
  if (call.p.decays) {
    const int64_t size =
        static_cast<int64_t>(call.in[kDecay].size()) / std::max<int64_t>(call.rows() * heads, 1);
    const double* decay = call.Row(kDecay, row, h, heads, size);
    for (int64_t i = 0; i < call.dk; ++i) {
      const double factor = std::exp(decay[size == 1 ? 0 : i]);
      for (int64_t j = 0; j < call.dv; ++j) state[i * call.dv + j] *= factor;
    }
  }
  Doubles update(v, v + call.dv);
  if (call.p.delta) {
    for (int64_t i = 0; i < call.dk; ++i) {
      for (int64_t j = 0; j < call.dv; ++j) update[j] -= state[i * call.dv + j] * k[i];
    }
    const bool shared = static_cast<int64_t>(call.in[kBeta].size()) == call.rows();
    const double beta = *call.Row(kBeta, row, shared ? 0 : h, shared ? 1 : heads, 1);
    for (double& value : update) value *= beta;
  }
  for (int64_t i = 0; i < call.dk; ++i) {
    for (int64_t j = 0; j < call.dv; ++j) state[i * call.dv + j] += k[i] * update[j];
  }
}

// output += scale * S^T q, of one query head.
void AddOutput(const Call& call, const double* q, const double* state, double* output) {
  for (int64_t i = 0; i < call.dk; ++i) {
    for (int64_t j = 0; j < call.dv; ++j) {
      output[j] += call.scale * q[i] * state[i * call.dv + j];
    }
  }
}

// All tokens of sequence and key head n, through its state, for the query heads that share it.
void RunHead(const Call& call, int64_t n, double* state, double* output) {
  const int64_t b = n / call.p.kv_heads, h = n % call.p.kv_heads;
  const int64_t group = call.p.q_heads / call.p.kv_heads;
  for (int64_t row = b * call.tokens; row < (b + 1) * call.tokens; ++row) {
    Update(call, row, h, state);
    for (int64_t head = h * group; head < (h + 1) * group; ++head) {
      AddOutput(call, call.Row(kQuery, row, head, call.p.q_heads, call.dk), state,
                output + (row * call.p.q_heads + head) * call.dv);
    }
  }
}

absl::Status RunLinearAttention(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, ReadCall(args));
  const int64_t size = call.dk * call.dv;
  const int64_t group = call.p.q_heads / call.p.kv_heads;
  Doubles output(static_cast<size_t>(args.output(0).size()));
  Doubles states = call.in[kPast];
  states.resize(static_cast<size_t>(call.batch * call.p.kv_heads * size));
  const int64_t work = call.tokens * size * (group + 2) + 1;
  ParallelFor(call.batch * call.p.kv_heads, work, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      RunHead(call, n, states.data() + n * size, output.data());
    }
  });
  PF_RETURN_IF_ERROR(EncodeDoubles(output, args.output(0), 0));
  return args.output(1).present() ? EncodeDoubles(states, args.output(1), 0) : absl::OkStatus();
}

}  // namespace

OpDef LinearAttentionDef() {
  return OpDef("", "LinearAttention", 27)
      .Doc(
          "For each token and head: S = exp(decay) S + k (x) u, output = scale q^T S. u is v "
          "(linear, gated) or beta (v - S^T k) with the decayed S (delta, gated_delta).")
      .Input("query", "T", "[B, T, Hq dk]")
      .Input("key", "T", "[B, T, Hk dk]")
      .Input("value", "T", "[B, T, Hk dv]")
      .Input("past_state", "S", "[B, Hk, dk, dv]; zeros if omitted", PortKind::kOptional)
      .Input("decay", "T", "[B, T, Hk dk] or [B, T, Hk], in log space", PortKind::kOptional)
      .Input("beta", "T", "[B, T, Hk] or [B, T, 1]", PortKind::kOptional)
      .Output("output", "T", "[B, T, Hq dv]")
      .Output("present_state", "S", "[B, Hk, dk, dv]", PortKind::kOptional)
      .Attr("chunk_size", int64_t{64}, "a hint that changes no result")
      .RequiredAttr("kv_num_heads", "Hk")
      .RequiredAttr("q_num_heads", "Hq")
      .Attr("scale", 0.0f, "0: 1 / sqrt(dk)")
      .Attr("update_rule", "gated_delta", "linear, gated, delta, gated_delta")
      .Types("T", TypesOf(Floats()))
      .Types("S", TypesOf(Floats()))
      .InferShapes(InferLinearAttention)
      .AddKernel({.name = "reference", .run = RunLinearAttention});
}

}  // namespace pagefuse::onnx_ops
