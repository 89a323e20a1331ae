// SPDX-License-Identifier: Apache-2.0
// norm-forms: brings RMSNorm to the form that fusions match: the weight is inside the op, and heads
// are transposed before it.
#include <utility>
#include <variant>
#include <vector>

#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {
namespace {

Condition IsUnit() {
  return {"the norm has no weight of its own", [](const Match& match) -> absl::Status {
            const Tensor* unit = match.constant("unit");
            if (unit && IsFilledWith(*unit, 1)) return absl::OkStatus();
            return MatchFailure("the norm has a weight already");
          }};
}

// The channels stay the last axis.
Condition KeepsChannels() {
  return {"the last axis stays the last", [](const Match& match) -> absl::Status {
            const auto& perm = std::get<std::vector<int64_t>>(match.attributes.at("perm").value);
            const auto rank = static_cast<int64_t>(perm.size());
            const int64_t axis = std::get<int64_t>(match.attributes.at("axis").value);
            if (rank > 1 && perm.back() == rank - 1 && (axis == -1 || axis == rank - 1)) {
              return absl::OkStatus();
            }
            return MatchFailure("the transposed axes are those of the norm");
          }};
}

}  // namespace

std::unique_ptr<Pass> RecogniseNormForms() {
  std::vector<Rule> rules;
  // Heads are transposed before they are normed, as most exporters have it.
  rules.push_back(
      Rule("rms-norm-behind-transpose", "RMSNorm followed by a Transpose")
          .MatchText("(x, weight) => (y) { normed = RMSNormalization <axis: int = @axis, epsilon: "
                     "float = @epsilon> (x, weight)  y = Transpose <perm: ints = @perm> (normed) }")
          .Where(KeepsChannels())
          .Where("rank(weight) == 1")  // one of heads would have to be turned too
          .ReplaceWith("(x, weight) => (y) { turned = Transpose <perm: ints = @perm> (x)  y = "
                       "RMSNormalization <axis: int = @axis, epsilon: float = @epsilon> (turned, "
                       "weight) }"));
  rules.push_back(
      Rule("rms-norm-weight", "RMSNorm without a weight, followed by a Mul with the weight")
          .MatchText("(x, unit, weight) => (y) { normed = RMSNormalization <axis: int = @axis, "
                     "epsilon: float = @epsilon> (x, unit)  y = Mul (normed, weight) }")
          .Where("rank(weight) == 1, dim(weight, 0) == dim(x, -1)")
          .Where(IsUnit())
          .ReplaceWith("(x, unit, weight) => (y) { y = RMSNormalization <axis: int = @axis, "
                       "epsilon: float = @epsilon> (x, weight) }"));
  return MakeRulePass(
      "norm-forms",
      "Brings RMSNormalization to the form that fusions match: the weight is inside the op, and "
      "heads are transposed before it.",
      std::move(rules));
}

}  // namespace pagefuse
