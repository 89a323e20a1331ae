// gated-mlp: act(x @ w_gate) * (x @ w_up) becomes one op that reads x once and keeps both products
// in cache. Both products may be cut off at one limit, the second one on both sides.
#include <utility>

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/constants.h"
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

// How an activation is spelled once it was recognised: `activated` from `gated`.
struct Spelling {
  std::string_view activation, text;
};
constexpr Spelling kSpellings[] = {
    {"gelu_tanh", "activated = Gelu <approximate = \"tanh\"> (gated)"},
    {"gelu", "activated = Gelu (gated)"},
    {"silu", "activated = Swish (gated)"}};

// Both products with weights of 4 or 8 bits.
Rule GatedNBits(const Spelling& gate) {
  const std::string sizes =
      "K: int = @K, N: int = @N, bits: int = @bits, block_size: int = @block_size, "
      "accuracy_level: int = @accuracy_level";
  const std::string product = StrCat("com.microsoft.MatMulNBits <", sizes, ">");
  return Rule("gated-mlp-nbits", "the gated half of an MLP with weights of 4 or 8 bits")
      .MatchText(StrCat("(x, gate, gate_scales, up, up_scales) => (y) { gated = ", product,
                        " (x, gate, gate_scales)  ", gate.text, "  upped = ", product,
                        " (x, up, up_scales)  y = Mul (activated, upped) }"),
                 std::string(gate.activation))
      .Where(IsFloat32("x"))
      .ReplaceWith(
          StrCat("(x, gate, gate_scales, up, up_scales) => (y) { y = pagefuse.GatedLinearNBits "
                 "<activation = \"",
                 gate.activation, "\", ", sizes, "> (x, gate, gate_scales, up, up_scales) }"));
}

// The limit of the first product is that of the second, on both sides.
Condition HasOneLimit() {
  return {
      "the second product is within the limit of the first", [](const Match& match) {
        const auto number = [&](const char* name) {
          const Tensor* tensor = match.constant(name);
          return tensor ? ScalarNumber(*tensor).value_or(0) : 0;
        };
        const double most = number("most"), least = number("least"), limit = number("limit");
        if (limit > 0 && most == limit && least == -limit) return absl::OkStatus();
        return absl::FailedPreconditionError(StrCat("expected a product within ", -limit, " and ",
                                                    limit, ", got ", least, " and ", most));
      }};
}

absl::Status TakeLimit(Match& match) {
  Attribute limit;
  limit.value = static_cast<float>(ScalarNumber(*match.constant("limit")).value_or(0));
  match.attributes["limit"] = std::move(limit);
  return absl::OkStatus();
}

// As GatedProducts, cut off.
Rule LimitedProducts(const Spelling& gate, bool transposed) {
  const std::string product = transposed ? "com.microsoft.FusedMatMul <transB = 1>" : "MatMul";
  return Rule(transposed ? "gated-mlp-limit-rows" : "gated-mlp-limit",
              "the gated half of an MLP whose products are cut off")
      .MatchText(
          StrCat("(x, w_gate, w_up, limit, least, most) => (y) { whole = ", product,
                 " (x, w_gate)  gated = Min (whole, limit)  ", gate.text, "  upped = ", product,
                 " (x, w_up)  cut = Clip (upped, least, most)  ", "y = Mul (activated, cut) }"),
          std::string(gate.activation))
      .Where(IsConstantMatrix("w_gate"))
      .Where(IsConstantMatrix("w_up"))
      .Where(HasOneLimit())
      .Derive(TakeLimit)
      .ReplaceWith(
          StrCat("(x, w_gate, w_up, limit, least, most) => (y) { y = pagefuse.GatedLinear <"
                 "activation = \"",
                 gate.activation, "\", limit: float = @limit", transposed ? ", transB = 1" : "",
                 "> (x, w_gate, w_up) }"));
}

// Both products by matrices as they lie (`transposed`: [N, K], as FusedMatMul reads them).
Rule GatedProducts(const Spelling& gate, bool transposed) {
  const std::string product = transposed ? "com.microsoft.FusedMatMul <transB = 1>" : "MatMul";
  return Rule(transposed ? "gated-mlp-rows" : "gated-mlp", "the gated half of an MLP")
      .MatchText(StrCat("(x, w_gate, w_up) => (y) { gated = ", product, " (x, w_gate)  ", gate.text,
                        "  upped = ", product, " (x, w_up)  y = Mul (activated, upped) }"),
                 std::string(gate.activation))
      .Where(IsConstantMatrix("w_gate"))
      .Where(IsConstantMatrix("w_up"))
      .ReplaceWith(StrCat("(x, w_gate, w_up) => (y) { y = pagefuse.GatedLinear <activation = \"",
                          gate.activation, "\"", transposed ? ", transB = 1" : "",
                          "> (x, w_gate, w_up) }"));
}

}  // namespace

std::unique_ptr<Pass> RecogniseGatedMlp() {
  std::vector<Rule> rules;
  for (const Spelling& gate : kSpellings) {
    for (const bool transposed : {false, true}) {
      rules.push_back(GatedProducts(gate, transposed));
      rules.push_back(LimitedProducts(gate, transposed));
    }
    rules.push_back(GatedNBits(gate));
  }
  return MakeRulePass("gated-mlp", "Recognises gated MLPs.", std::move(rules));
}

}  // namespace pagefuse
