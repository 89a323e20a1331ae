// swish: x * sigmoid(x) becomes Swish, the name that opset 24 has for it.
//
//   x --+-- Sigmoid --+
//       |             Mul -- y      =>      x -- Swish -- y
//       +-------------+
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

std::unique_ptr<Pass> RecogniseSwish() {
  return MakeRulePass("swish", "Finds x * sigmoid(alpha * x) and makes it Swish.",
                      {Rule("swish-alpha", "x * sigmoid(alpha * x)")
                           .MatchText(R"((x) => (y) {
             alpha = Constant <value_float: float = @alpha> ()
             scaled = Mul (x, alpha)  s = Sigmoid (scaled)  y = Mul (x, s)
           })")
                           .ReplaceWith("(x) => (y) { y = Swish <alpha: float = @alpha> (x) }"),
                       Rule("swish", "x * sigmoid(x)")
                           .MatchText("(x) => (y) { s = Sigmoid (x)  y = Mul (x, s) }")
                           .ReplaceWith("(x) => (y) { y = Swish (x) }")});
}

}  // namespace pagefuse
