#include "pagefuse/passes/page/recognise_again.h"

#include <memory>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {

absl::Status RecogniseAgain(Model& model, SymbolicContents& contents) {
  const std::unique_ptr<Pass> passes[] = {RecogniseAttentionSpellings(), RecogniseAttention(),
                                          RecogniseAttentionInputs(), RecogniseAttentionMask()};
  for (const auto& pass : passes) {
    PassContext context;
    contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &contents));
    context.contents = contents;
    PF_RETURN_IF_ERROR(pass->Run(model, context).status());
  }
  contents.clear();
  return InferShapes(model, &contents);
}

}  // namespace pagefuse
