// fuse-transposed-weights: x @ transpose(w) reads a constant w as it lies. A tied embedding [V, H]
// is neither moved at every run nor kept twice.
//
//   w [V, H] -- Transpose -- MatMul(x, .)    =>    com.microsoft.FusedMatMul <transB = 1> (x, w)
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

Condition IsConstantMatrix() {
  return {"w is a constant matrix", [](const Match& match) -> absl::Status {
            const Value* w = match.value("w");
            if (w->IsConstant() && w->initializer()->rank() == 2) return absl::OkStatus();
            return absl::FailedPreconditionError("\"w\" is no constant matrix");
          }};
}

}  // namespace

std::unique_ptr<Pass> FuseTransposedWeights() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("fuse-transposed-weights", "a product with a transposed constant")
          .MatchText("(x, w) => (y) { t = Transpose <perm = [1, 0]> (w)  y = MatMul (x, t) }")
          .Metadata({"w"})
          .Where(IsConstantMatrix())
          .ReplaceWith("(x, w) => (y) { y = com.microsoft.FusedMatMul <transB = 1> (x, w) }"));
  return MakeRulePass("fuse-transposed-weights",
                      "Lets products read transposed constants as they lie.", std::move(rules));
}

}  // namespace pagefuse
