// Patterns go through the same rewrites as graphs.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/words/words.h"

namespace pagefuse {

absl::Status CanonicalisePattern(Model& model) {
  std::vector<std::unique_ptr<Pass>> passes;
  passes.push_back(RaiseOpset());
  passes.push_back(ConstantFolding());
  passes.push_back(SimplifyCasts());
  passes.push_back(SimplifyShapes());
  passes.push_back(SimplifyArithmetic());
  passes.push_back(RecogniseScalarFunctions());
  passes.push_back(Cse());
  passes.push_back(DeadCode());
  constexpr int kMaxRounds = 8;
  PassContext context;
  bool stale = true;
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (const auto& pass : passes) {
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
