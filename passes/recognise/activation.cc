// activation: GELU written out becomes Gelu-20.
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

namespace {

// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
Rule GeluTanh() {
  return Rule("gelu-tanh", "GELU by its tanh approximation")
      .MatchText(R"((x) => (y) {
                        three = Constant <value_float: float = 3.0> ()
                        cube = Pow (x, three)
                        a = Constant <value_float: float = 0.044715> ()
                        scaled = Mul (cube, a)
                        sum = Add (x, scaled)
                        b = Constant <value_float: float = 0.7978845608> ()
                        inner = Mul (sum, b)
                        t = Tanh (inner)
                        one = Constant <value_float: float = 1.0> ()
                        shifted = Add (t, one)
                        half = Constant <value_float: float = 0.5> ()
                        gate = Mul (shifted, half)
                        y = Mul (x, gate)
                      })",
                 "half on the gate")
      .MatchText(R"((x) => (y) {
                        three = Constant <value_float: float = 3.0> ()
                        cube = Pow (x, three)
                        a = Constant <value_float: float = 0.044715> ()
                        scaled = Mul (cube, a)
                        sum = Add (x, scaled)
                        b = Constant <value_float: float = 0.7978845608> ()
                        inner = Mul (sum, b)
                        t = Tanh (inner)
                        one = Constant <value_float: float = 1.0> ()
                        shifted = Add (t, one)
                        half = Constant <value_float: float = 0.5> ()
                        halved = Mul (x, half)
                        y = Mul (halved, shifted)
                      })",
                 "half on the input")
      .ReplaceWith(R"((x) => (y) { y = Gelu <approximate = "tanh"> (x) })");
}

// 0.5 * x * (1 + erf(x / sqrt(2)))
Rule GeluErf() {
  return Rule("gelu-erf", "GELU by the error function")
      .MatchText(R"((x) => (y) {
                        root = Constant <value_float: float = 1.4142135624> ()
                        scaled = Div (x, root)
                        e = Erf (scaled)
                        one = Constant <value_float: float = 1.0> ()
                        shifted = Add (e, one)
                        half = Constant <value_float: float = 0.5> ()
                        gate = Mul (shifted, half)
                        y = Mul (x, gate)
                      })",
                 "half on the gate")
      .MatchText(R"((x) => (y) {
                        root = Constant <value_float: float = 1.4142135624> ()
                        scaled = Div (x, root)
                        e = Erf (scaled)
                        one = Constant <value_float: float = 1.0> ()
                        shifted = Add (e, one)
                        product = Mul (x, shifted)
                        half = Constant <value_float: float = 0.5> ()
                        y = Mul (product, half)
                      })",
                 "half last")
      .ReplaceWith("(x) => (y) { y = Gelu (x) }");
}

}  // namespace

std::unique_ptr<Pass> RecogniseActivation() {
  return MakeRulePass("activation", "Recognises GELU.", {GeluTanh(), GeluErf()});
}

}  // namespace pagefuse
