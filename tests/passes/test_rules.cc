// Rules that exercise the matcher, in standard ops only: each shows one thing that a pattern can
// say.
#include "test_rules.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/pipeline.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

// A commutative DAG: x * sigmoid(x) * y.
Rule TestSilu() {
  return Rule("test-silu")
      .MatchText("(x, y) => (z) { s = Sigmoid (x)  silu = Mul (x, s)  z = Mul (silu, y) }")
      .Where(SameShape("x", "y"))
      .ReplaceWith(R"((x, y) => (z) {
        one = Constant <value_float: float = 1.0> ()
        n = Neg (x)  e = Exp (n)  d = Add (e, one)  q = Div (x, d)  z = Mul (q, y)
      })");
}

// Constants by value, an attribute bound from a constant, an axis from either end.
Rule TestNorm() {
  return Rule("test-norm")
      .MatchText(R"((x) => (y) {
        axes = Constant <value_ints: ints = [-1]> ()
        epsilon = Constant <value_float: float = @epsilon> ()
        square = Mul (x, x)  mean = ReduceMean <keepdims = 1> (square, axes)
        shifted = Add (mean, epsilon)  root = Sqrt (shifted)  y = Div (x, root)
      })")
      .ReplaceWith(R"((x) => (y) {
        axes = Constant <value_ints: ints = [-1]> ()
        epsilon = Constant <value_float: float = @epsilon> ()
        sum = ReduceSumSquare <keepdims = 1> (x, axes)  size = Shape <start = -1> (x)
        count = CastLike (size, x)  mean = Div (sum, count)
        shifted = Add (mean, epsilon)  root = Sqrt (shifted)  y = Div (x, root)
      })");
}

// Two outputs over an inner value that derives from metadata: others may read it.
Rule TestTwoOutputs() {
  return Rule("test-two-outputs")
      .MatchText(
          "(a, b, slots) => (p, q) { k = Abs (slots)  p = Gather (a, k)  q = Gather (b, k) }")
      .Metadata({"slots"})
      .ReplaceWith(R"((a, b, slots) => (p, q) {
        k = Abs (slots)  last = Constant <value_ints: ints = [-1]> ()  i = Unsqueeze (k, last)
        p = GatherND (a, i)  q = GatherND (b, i)
      })");
}

// A view is matched by the shape of its result.
Rule TestView() {
  return Rule("test-view")
      .MatchText(R"((float[N, H, D] x) => (y) {
        n = Neg (x)  size = Shape <start = 0, end = 1> (x)
        rest = Constant <value_ints: ints = [-1]> ()
        target = Concat <axis = 0> (size, rest)  y = Reshape (n, target)
      })")
      .ReplaceWith(R"((x) => (y) {
        zero = Constant <value_float: float = 0.0> ()  d = Sub (zero, x)  y = Flatten <axis = 1> (d)
      })");
}

// What is computed from shapes alone is matched by its contents.
Rule TestHalves() {
  return Rule("test-halves")
      .MatchText(R"((x) => (y) {
        two = Constant <value_ints: ints = [2]> ()  zero = Constant <value_ints: ints = [0]> ()
        axis = Constant <value_ints: ints = [-1]> ()
        size = Shape <start = -1> (x)  half = Div (size, two)
        low = Slice (x, zero, half, axis)  high = Slice (x, half, size, axis)
        n = Neg (high)  y = Concat <axis = -1> (n, low)
      })")
      .ReplaceWith(R"((x) => (y) {
        low, high = Split <axis = -1, num_outputs = 2> (x)
        minus = Constant <value_float: float = -1.0> ()
        n = Mul (high, minus)  y = Concat <axis = -1> (n, low)
      })");
}

// An input that may be missing.
Rule TestOptional() {
  return Rule("test-optional")
      .MatchText("(a, b, c?) => (y) { y = Gemm <transA = 0> (a, b, c) }")
      .ReplaceWith(R"((a, b, c) => (y) {
        t = Transpose <perm = [1, 0]> (a)  y = Gemm <transA = 1> (t, b, c)
      })");
}

// Less is Greater with its operands exchanged.
Rule TestMirrored() {
  return Rule("test-mirrored")
      .MatchText("(a, b) => (y) { m = Less (a, b)  y = Where (m, a, b) }")
      .ReplaceWith("(a, b) => (y) { y = Min (a, b) }");
}

// A cast to the type that a value has already may be missing.
Rule TestCast() {
  return Rule("test-cast")
      .MatchText("(x) => (y) { f = Cast <to = 1> (x)  y = Exp (f) }")
      .ReplaceWith(R"((x) => (y) {
        e = Constant <value_float: float = 2.7182817> ()  f = Cast <to = 1> (x)  y = Pow (e, f)
      })");
}

// 0, 1, 2, ... computed from a size.
Rule TestRange() {
  return Rule("test-range")
      .MatchText(R"((x) => (y) {
        zero = Constant <value_int: int = 0> ()  one = Constant <value_int: int = 1> ()
        size = Shape <start = 0, end = 1> (x)  n = Squeeze (size)
        r = Range (zero, n, one)  y = Add (x, r)
      })")
      .ReplaceWith(R"((x) => (y) {
        zero = Constant <value_int: int = 0> ()  minus = Constant <value_int: int = -1> ()
        size = Shape <start = 0, end = 1> (x)  n = Squeeze (size)  m = Neg (n)
        r = Range (zero, m, minus)  y = Sub (x, r)
      })");
}

std::vector<Rule> TestRules() {
  return {TestMirrored(),   TestCast(), TestRange(),  TestSilu(),    TestNorm(),
          TestTwoOutputs(), TestView(), TestHalves(), TestOptional()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pass>> FindTestPass(const std::string& name) {
  for (Rule& rule : TestRules()) {
    if (rule.name() == name) return MakeRulePass(name, "", {rule});
  }
  return FindPass(name);
}

}  // namespace pagefuse
