// SPDX-License-Identifier: Apache-2.0
// A grammar over the tokens of a model, as the engine asks for it.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/runtime/token_constraint.h"
#include "pagefuse/serve/answer_text.h"
#include "pagefuse/serve/served_model.h"
#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse::serve {

// The grammar binds what follows the reasoning.
absl::StatusOr<Grammar::Ptr> BehindReasoning(const Grammar::Ptr& grammar,
                                             const ReasoningFormat& reasoning,
                                             bool begins_in_reasoning);

// For one request. `ends`: tokens that end its answers. The model outlives it.
TokenConstraintMaker ConstraintOf(Grammar::Ptr grammar, const ServedModel& model,
                                  std::vector<int64_t> ends);

}  // namespace pagefuse::serve
