// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/answer_constraint.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/token_mask.h"

namespace pagefuse::serve {
namespace {

class MaskConstraint final : public TokenConstraint {
 public:
  explicit MaskConstraint(TokenMask mask) : mask_(std::move(mask)) {}
  absl::StatusOr<std::span<const uint64_t>> Allowed() override { return mask_.Allowed(); }
  // What was allowed is accepted.
  void Accept(int64_t token) override { mask_.Accept(token).IgnoreError(); }
  bool Ended() const override { return mask_.finished(); }

 private:
  TokenMask mask_;
};

}  // namespace

absl::StatusOr<Grammar::Ptr> BehindReasoning(const Grammar::Ptr& grammar,
                                             const ReasoningFormat& reasoning,
                                             bool begins_in_reasoning) {
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr rest, Grammar::Until(reasoning.closing));
  // Models write line breaks there, and some the marks of content.
  std::vector<Grammar::Ptr> between;
  PF_ASSIGN_OR_RETURN(between.emplace_back(), Grammar::OfText("\n"));
  for (const std::string_view mark : reasoning.dropped) {
    PF_ASSIGN_OR_RETURN(between.emplace_back(), Grammar::OfText(mark));
  }
  PF_ASSIGN_OR_RETURN(Grammar::Ptr gap, Grammar::AnyOf(between));
  constexpr int kMostBetween = 4;
  PF_ASSIGN_OR_RETURN(gap, Grammar::Repeat(gap, 0, kMostBetween));
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr bound, Grammar::Sequence({rest, gap, grammar}));
  if (begins_in_reasoning) return bound;
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr opening, Grammar::OfText(reasoning.opening));
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr reasons, Grammar::Sequence({opening, bound}));
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr direct, Grammar::Sequence({gap, grammar}));
  return Grammar::AnyOf({direct, reasons});
}

TokenConstraintMaker ConstraintOf(Grammar::Ptr grammar, const ServedModel& model,
                                  std::vector<int64_t> ends) {
  return [grammar = std::move(grammar), &model, ends = std::move(ends)] {
    return std::make_unique<MaskConstraint>(
        TokenMask(grammar, model.trie, ends, model.decoder->vocabulary()));
  };
}

}  // namespace pagefuse::serve
