// swish: x * sigmoid(x) becomes Swish, the name that opset 24 has for it (swish.rules.txt).
//
//   x --+-- Sigmoid --+
//       |             Mul -- y      =>      x -- Swish -- y
//       +-------------+
#include "pagefuse/passes/authoring/embedded_rules.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {

std::unique_ptr<Pass> RecogniseSwish() {
  return EmbeddedRulePass("swish", "Finds x * sigmoid(alpha * x) and makes it Swish.");
}

}  // namespace pagefuse
