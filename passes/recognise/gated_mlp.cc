// gated-mlp: act(x @ w_gate) * (x @ w_up) becomes one op that reads x once and keeps both products
// in cache.
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

Condition IsConstantMatrix(std::string name) {
  return {name + " is a constant matrix", [name](const Match& match) -> absl::Status {
            const Value* value = match.value(name);
            if (!value->IsConstant() || value->initializer()->rank() != 2) {
              return absl::FailedPreconditionError("\"" + name + "\" is no constant matrix");
            }
            return absl::OkStatus();
          }};
}

Condition IsFloat32(std::string name) {
  return {name + " is float32", [name](const Match& match) -> absl::Status {
            const DataType type = match.value(name)->dtype();
            if (type == DataType::kFloat) return absl::OkStatus();
            return absl::FailedPreconditionError(
                StrCat("\"", name, "\": expected float, got ", DataTypeName(type)));
          }};
}

// Both products with weights of 4 or 8 bits. `activated` is computed from `gated`.
Rule GatedNBits(const std::string& activation, const std::string& activated) {
  const std::string sizes =
      "K: int = @K, N: int = @N, bits: int = @bits, block_size: int = @block_size, "
      "accuracy_level: int = @accuracy_level";
  const std::string product = StrCat("com.microsoft.MatMulNBits <", sizes, ">");
  return Rule("gated-mlp-nbits", "the gated half of an MLP with weights of 4 or 8 bits")
      .MatchText(StrCat("(x, gate, gate_scales, up, up_scales) => (y) { gated = ", product,
                        " (x, gate, gate_scales)  ", activated, "  upped = ", product,
                        " (x, up, up_scales)  y = Mul (activated, upped) }"),
                 activation)
      .Where(IsFloat32("x"))
      .ReplaceWith(
          StrCat("(x, gate, gate_scales, up, up_scales) => (y) { y = pagefuse.GatedLinearNBits "
                 "<activation = \"",
                 activation, "\", ", sizes, "> (x, gate, gate_scales, up, up_scales) }"));
}

}  // namespace

std::unique_ptr<Pass> RecogniseGatedMlp() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("gated-mlp", "the gated half of an MLP")
          .MatchDecompositionOf("pagefuse.GatedLinear")
          .Where(IsConstantMatrix("w_gate"))
          .Where(IsConstantMatrix("w_up"))
          .ReplaceWith("(x, w_gate, w_up) => (y) { y = pagefuse.GatedLinear <activation: string = "
                       "@activation> (x, w_gate, w_up) }"));
  // Swish was recognised before, where the model says x * sigmoid(x).
  rules.push_back(
      Rule("gated-mlp-swish", "the gated half of an MLP, gated by Swish")
          .MatchText(
              "(x, w_gate, w_up) => (y) { gate = MatMul (x, w_gate)  activated = Swish (gate) "
              " up = MatMul (x, w_up)  y = Mul (activated, up) }")
          .Where(IsConstantMatrix("w_gate"))
          .Where(IsConstantMatrix("w_up"))
          .ReplaceWith(
              "(x, w_gate, w_up) => (y) { y = pagefuse.GatedLinear <activation = \"silu\"> "
              "(x, w_gate, w_up) }"));
  rules.push_back(GatedNBits("gelu_tanh", "activated = Gelu <approximate = \"tanh\"> (gated)"));
  rules.push_back(GatedNBits("gelu", "activated = Gelu (gated)"));
  rules.push_back(GatedNBits("silu", "activated = Swish (gated)"));
  return MakeRulePass("gated-mlp", "Recognises gated MLPs.", std::move(rules));
}

}  // namespace pagefuse
