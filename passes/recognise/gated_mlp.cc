// gated-mlp: act(x @ w_gate) * (x @ w_up) becomes one op that reads x once and keeps both products
// in cache.
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
  return MakeRulePass("gated-mlp", "Recognises gated MLPs.", std::move(rules));
}

}  // namespace pagefuse
