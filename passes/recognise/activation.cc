// activation: GELU written out becomes Gelu-20 (activation.rules.txt).
#include "pagefuse/passes/authoring/embedded_rules.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {

std::unique_ptr<Pass> RecogniseActivation() {
  return EmbeddedRulePass("activation", "Recognises GELU.");
}

}  // namespace pagefuse
