// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/canonical_pattern.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {

namespace {

// Made once: there are hundreds of patterns.
const std::vector<std::unique_ptr<Pass>>& PatternPasses() {
  static const auto* passes = [] {
    auto* all = new std::vector<std::unique_ptr<Pass>>;
    all->push_back(RaiseOpset());
    all->push_back(ConstantFolding());
    all->push_back(SimplifyCasts());
    all->push_back(SimplifyShapes());
    all->push_back(SimplifyArithmetic());
    all->push_back(SimplifyProducts());
    all->push_back(RecogniseScalarFunctions());
    all->push_back(Cse());
    all->push_back(DeadCode());
    return all;
  }();
  return *passes;
}

}  // namespace

absl::Status CanonicalizePattern(Model& model) {
  constexpr int kMaxRounds = 8;
  PassContext context;
  bool stale = true;
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (const auto& pass : PatternPasses()) {
      // Patterns have open types; what cannot be inferred stays unknown, and the rewrites that need
      // it do not happen.
      if (stale) {
        context.contents.clear();
        (void)InferShapes(model, &context.contents);
      }
      PF_ASSIGN_OR_RETURN(stale, pass->Run(model, context));
      changed = changed || stale;
    }
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
