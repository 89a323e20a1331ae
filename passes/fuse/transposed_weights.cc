// fuse-transposed-weights: x @ transpose(w) reads a constant w as it lies. A tied embedding [V, H]
// is neither moved at every run nor kept twice.
//
//   w [V, H] -- Transpose -- MatMul(x, .)    =>    com.microsoft.FusedMatMul <transB = 1> (x, w)
//
// fuse-transposed-factors: the same for computed matrices and batches of them, where nothing else
// took the product (keys of attention that stays written out, weights in groups).
#include <string>

#include "pagefuse/ir/str_cat.h"
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

// What FusedMatMul may be; integers stay products of what was transposed.
Condition IsFloat() {
  return {"w is of a floating-point type", [](const Match& match) -> absl::Status {
            switch (match.value("w")->dtype()) {
              case DataType::kFloat:
              case DataType::kFloat16:
              case DataType::kBfloat16:
              case DataType::kDouble:
                return absl::OkStatus();
              default:
                return absl::FailedPreconditionError("\"w\" is of no floating-point type");
            }
          }};
}

// `perm` exchanges the last two axes.
Rule TransposedFactor(const std::string& perm, const std::string& what) {
  return Rule("fuse-transposed-factors", what)
      .MatchText(
          StrCat("(x, w) => (y) { t = Transpose <perm = [", perm, "]> (w)  y = MatMul (x, t) }"))
      .Where(IsFloat())
      .ReplaceWith("(x, w) => (y) { y = com.microsoft.FusedMatMul <transB = 1> (x, w) }");
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

std::unique_ptr<Pass> FuseTransposedFactors() {
  std::vector<Rule> rules;
  rules.push_back(TransposedFactor("1, 0", "a product with a transposed matrix"));
  rules.push_back(TransposedFactor("0, 2, 1", "a product with a batch of transposed matrices"));
  rules.push_back(TransposedFactor("0, 1, 3, 2", "a product with transposed matrices of heads"));
  return MakeRulePass("fuse-transposed-factors",
                      "Lets products read transposed right sides as they lie.", std::move(rules));
}

}  // namespace pagefuse
