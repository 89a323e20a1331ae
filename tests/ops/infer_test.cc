// SPDX-License-Identifier: Apache-2.0
// Symbolic shape inference over graphs.
#include "pagefuse/ops/infer/infer.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

// A model at opset 18 with input x int64[batch, seq] and p float[batch, past, 8], inferred; values
// are asked by name.
class InferTest : public testing::Test {
 protected:
  absl::Status Infer(std::string_view body) {
    absl::StatusOr<Model> model = ParseModel(
        "<ir_version: 10, opset_import: [\"\" : 18, \"f\" : 1]> g (int64[batch, seq] x, "
        "float[batch, past, 8] p) => (int64[M] out) <int64[1] zero = {0}, int64[1] one = {1}, "
        "int64[1] two = {2}, int64[1] minus = {-1}, int64 start = {0}, int64 step = {1}> {" +
        std::string(body) + "}");
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    return InferShapes(model_, &contents_);
  }

  std::string ShapeOf(std::string_view name) const {
    const Value* value = model_.graph->FindValue(name);
    if (value == nullptr) return "no such value";
    return value->shape() ? value->shape()->ToString() : "unknown";
  }

  std::string ContentsOf(std::string_view name) const {
    const auto it = contents_.find(model_.graph->FindValue(name));
    return it == contents_.end() ? "unknown" : Shape(it->second).ToString();
  }

  Model model_;
  SymbolicContents contents_;
};

TEST_F(InferTest, ShapeArithmeticGivesDims) {
  Must(Infer(R"(
    sx = Shape (x)
    seq = Slice (sx, one, two)
    sp = Shape <start = 1, end = 2> (p)
    scalar = Squeeze (sp, zero)
    i = Gather (sx, start)
    list = Concat <axis = 0> (seq, sp, minus)
    out = Concat <axis = 0> (list, two))"));
  EXPECT_EQ(ContentsOf("seq"), "[seq]");
  EXPECT_EQ(ContentsOf("scalar"), "[past]");
  EXPECT_EQ(ContentsOf("i"), "[batch]");
  EXPECT_EQ(ContentsOf("out"), "[seq, past, -1, 2]");
  EXPECT_EQ(ShapeOf("scalar"), "[]");
}

TEST_F(InferTest, RangeFromZeroToASizeHasThatSize) {
  Must(Infer(R"(
    sx = Shape (x)
    seq = Slice (sx, one, two)
    n = Squeeze (seq)
    out = Range (start, n, step))"));
  EXPECT_EQ(ShapeOf("out"), "[seq]");
}

TEST_F(InferTest, ReshapeCancelsSymbols) {
  Must(Infer(R"(
    b = Shape <end = 1> (p)
    heads = Concat <axis = 0> (b, minus, two)
    split = Reshape (p, heads)
    flat = Flatten <axis = 2> (p)
    shape = Shape (p)
    back = Reshape (flat, shape)
    pairs = Mul (b, two)
    halves = Concat <axis = 0> (pairs, minus, two)
    half = Reshape (p, halves)
    out = Shape (back))"));
  EXPECT_EQ(ShapeOf("half"), "[2*batch, 2*past, 2]");
  EXPECT_EQ(ShapeOf("split"), "[batch, 4*past, 2]");
  EXPECT_EQ(ShapeOf("back"), "[batch, past, 8]");
}

TEST_F(InferTest, SliceOfASymbolIsClamped) {
  const absl::Status status = Infer(R"(
    last = Slice (p, minus, big, one)
    first = Slice (p, zero, two, one)
    big = Constant <value_ints = [9223372036854775807]> ()
    out = Shape (first))");
  EXPECT_FALSE(status.ok());  // "big" is read before it is made
  Must(Infer(R"(
    big = Constant <value_ints = [9223372036854775807]> ()
    all = Slice (p, zero, big, one)
    first = Slice (p, zero, two, one)
    out = Shape (first))"));
  EXPECT_EQ(ShapeOf("all"), "[batch, past, 8]");
  EXPECT_EQ(ShapeOf("first"), "[batch, min(2, past), 8]");
}

TEST_F(InferTest, RowsOfATableAreAsManyAsTheyAreAddedTo) {
  Must(Infer(R"(
    big = Constant <value_ints = [9223372036854775807]> ()
    five = Constant <value_ints = [5]> ()
    all = Constant <value_ints = [1, 5, 8]> ()
    table = ConstantOfShape (all)
    size = Shape <start = 1, end = 2> (p)
    first = Slice (table, zero, size, one)
    left = Sub (five, size)
    from = Max (left, zero)
    last = Slice (table, from, big, one)
    sum = Add (p, first)
    last_sum = Add (last, p)
    twice = Concat <axis = 1> (p, p)
    no_sum = Add (first, twice)
    out = Shape (sum))"));
  EXPECT_EQ(ContentsOf("from"), "[-(min(5, past)) + 5]");
  EXPECT_EQ(ShapeOf("last"), "[1, min(5, past), 8]");
  EXPECT_EQ(ShapeOf("sum"), "[batch, past, 8]");
  EXPECT_EQ(ShapeOf("last_sum"), "[batch, past, 8]");
  // More rows than there are others are no sum, unless it is one.
  EXPECT_THAT(ShapeOf("no_sum"), HasSubstr("u__"));
}

TEST_F(InferTest, WholeStepsOfALengthAreNotAboveIt) {
  Must(Infer(R"(
    four = Constant <value_ints = [4]> ()
    three = Constant <value_ints = [3]> ()
    size = Shape <start = 1, end = 2> (p)
    count = Div (size, four)
    whole = Mul (count, four)
    less = Mul (count, three)
    part = Slice (p, zero, whole, one)
    other = Slice (p, zero, less, one)
    out = Shape (part))"));
  EXPECT_EQ(ShapeOf("part"), "[batch, 4*(past//4), 8]");
  // That is not above it either, which is not looked for.
  EXPECT_EQ(ShapeOf("other"), "[batch, min(3*(past//4), past), 8]");
}

TEST_F(InferTest, FunctionsAreInferredForEachCall) {
  Must(Infer(R"(
    y = f.Twice <along = 0> (x)
    z = f.Twice <along = 1> (x)
    out = Shape (z) }
    <domain: "f", opset_import: ["" : 18]> Twice <along> (v) => (w) {
      w = Concat <axis: int = @along> (v, v)
    )"));
  EXPECT_EQ(ShapeOf("y"), "[2*batch, seq]");
  EXPECT_EQ(ShapeOf("z"), "[batch, 2*seq]");
  EXPECT_EQ(ContentsOf("out"), "[batch, 2*seq]");
}

TEST_F(InferTest, CallsThatAreAlikeDoNotShareSizesThatDependOnData) {
  Must(Infer(R"(
    a = f.Places (x)
    b = f.Places (x)
    out = Concat <axis = 0> (minus, two) }
    <domain: "f", opset_import: ["" : 18]> Places (v) => (w) {
      w = NonZero (v)
    )"));
  const Shape& a = *model_.graph->FindValue("a")->shape();
  const Shape& b = *model_.graph->FindValue("b")->shape();
  EXPECT_EQ(a[0], Dim(2));
  EXPECT_EQ(b[0], Dim(2));
  EXPECT_TRUE(a[1].known() && b[1].known());
  EXPECT_FALSE(ProvablyEqual(a[1], b[1]));
  const std::string before = PrintModel(model_);
  ASSERT_TRUE(InferShapes(model_).ok());
  EXPECT_EQ(PrintModel(model_), before);
}

TEST_F(InferTest, CallsThatAreAlikeKeepWhatTheirInputsSay) {
  Must(Infer(R"(
    n = NonZero (x)
    a = f.Same (n)
    b = f.Same (n)
    out = f.Size (zero)
    more = f.Size (two) }
    <domain: "f", opset_import: ["" : 18]> Same (v) => (w) { w = Neg (v) }
    <domain: "f", opset_import: ["" : 18]> Size (v) => (w) { w = Add (v, v) )"));
  EXPECT_EQ(ShapeOf("a"), ShapeOf("n"));
  EXPECT_EQ(ShapeOf("b"), ShapeOf("n"));
  EXPECT_EQ(ContentsOf("out"), "[0]");
  EXPECT_EQ(ContentsOf("more"), "[4]");
}

TEST(InferShapes, InfersABodyOnceForEachKindOfCall) {
  int inferred = 0;
  OpRegistry registry;
  ASSERT_TRUE(registry
                  .Add(OpDef("t", "Counted", 1)
                           .Input("x", "T")
                           .Output("y", "T")
                           .Attr("k", int64_t{0})
                           .Types("T", {DataType::kFloat})
                           .InferShapes([&inferred](ShapeContext& c) {
                             ++inferred;
                             c.SetOutput(0, c.input_type(0), *c.input_shape(0));
                             return absl::OkStatus();
                           }))
                  .ok());
  Model model = Must(ParseModel(R"(
    <ir_version: 10, opset_import: ["t" : 1, "f" : 1]>
    g (float[n] x, float[2] two) => (float[n] y) {
      a = f.Outer (x)
      b = f.Outer (a)
      c = f.Outer <k = 1> (b)
      d = f.Inner <k = 1> (two)
      y = f.Outer (c)
    }
    <domain: "f", opset_import: ["t" : 1, "f" : 1]> Inner <k> (x) => (y) { y = t.Counted <k: int = @k> (x) }
    <domain: "f", opset_import: ["t" : 1, "f" : 1]> Outer <k = 0> (x) => (y) {
      t = f.Inner <k: int = @k> (x)
      y = f.Inner <k: int = @k> (t)
    })"));
  Must(InferShapes(model, nullptr, registry));
  EXPECT_EQ(inferred, 3);  // x with k = 0 and 1, two with k = 1
  EXPECT_EQ(model.graph->FindValue("c")->shape()->ToString(), "[n]");
}

// A model whose function F`levels` calls F`levels - 1` twice, and so on.
Model Bomb(int levels) {
  std::string text =
      "<ir_version: 10, opset_import: [\"\" : 18, \"f\" : 1]> g (float[2] x) => (float[2] y) { y = "
      "f.F" +
      std::to_string(levels) +
      " (x) }\n"
      "<domain: \"f\", opset_import: [\"\" : 18, \"f\" : 1]> F0 (a) => (b) { b = Relu (a) }\n";
  for (int level = 1; level <= levels; ++level) {
    const std::string called = "f.F" + std::to_string(level - 1);
    text += "<domain: \"f\", opset_import: [\"\" : 18, \"f\" : 1]> F" + std::to_string(level) +
            " (a) => (b) { t = " + called + " (a) b = " + called + " (t) }\n";
  }
  return Must(ParseModel(text));
}

TEST(InferShapes, SaysWhichFunctionWouldBeTooManyNodes) {
  Model bomb = Bomb(40);
  const absl::Status status = InferShapes(bomb);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "function \"f.F40\": the bodies of called functions would be 1099511627776 nodes, "
            "expected at most 262144");
  EXPECT_EQ(VerifyOps(bomb), status);
}

TEST(InferShapes, SaysThatCallsAreNestedTooDeeply) {
  Model deep = Bomb(70);
  EXPECT_EQ(std::string(InferShapes(deep).message()),
            "function \"f.F6\": expected calls in calls at most 64 deep, got more");
}

TEST(InferShapes, FunctionsOfAFewThousandNodesAreFine) {
  Model model = Bomb(12);
  EXPECT_TRUE(InferShapes(model).ok());
  EXPECT_TRUE(VerifyOps(model).ok());
}

TEST_F(InferTest, InferringTwiceChangesNothing) {
  ASSERT_TRUE(Infer("n = NonZero (x) t = Transpose (n) out = Shape (t)").ok());
  const std::string before = PrintModel(model_);
  ASSERT_TRUE(InferShapes(model_).ok());
  EXPECT_EQ(PrintModel(model_), before);
}

TEST_F(InferTest, UnknownOpsKeepWhatIsDeclared) {
  ASSERT_TRUE(Infer("out = Frobnicate (x)").ok());
  EXPECT_EQ(ShapeOf("out"), "[M]");
}

TEST(InferShapes, AConstantKnowsBetterThanItsDeclaration) {
  Model model = Must(
      ParseModel("<ir_version: 10, opset_import: [\"\" : 18]> g (float[2, 3] x) => (float[3, 2] y) "
                 "<int64 s> { s = Constant <value_ints: ints = [3, 2]> ()  y = Reshape (x, s) }"));
  ASSERT_TRUE(InferShapes(model).ok());
  EXPECT_EQ(model.graph->FindValue("s")->shape()->ToString(), "[2]");
}

TEST(InferShapes, RefusesADeclarationThatCannotBe) {
  Model model = Must(
      ParseModel("<ir_version: 10, opset_import: [\"\" : 18]> g (float[2, 3] x) => (float[2, 3] y) "
                 "{ y = Transpose (x) }"));
  const absl::Status status = InferShapes(model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "node \"y\" (Transpose): output \"y\": declared as [2, 3], inferred as [3, 2]");
}

// Seen in exports: value_info declares a scalar where the constant has one element.
TEST_F(InferTest, AConstantHasItsOwnShapeWhateverIsDeclared) {
  model_ = Must(ParseModel(R"(
    <ir_version: 10, opset_import: ["" : 18]>
    g (float[N] x) => (float[N] y) <float c> {
      c = Constant <value_floats = [2.0]> ()
      y = Mul (x, c)
    })"));
  Must(InferShapes(model_, &contents_));
  EXPECT_EQ(ShapeOf("c"), "[1]");
}

// What is neither 0 nor 1 one runtime takes for yes, the next one for no.
TEST(InferShapes, RefusesAFlagThatIsNeitherZeroNorOne) {
  const std::pair<const char*, const char*> nodes[] = {
      {"r = RotaryEmbedding <interleaved = 2> (x, t, t)",
       "node \"r\" (RotaryEmbedding): attribute \"interleaved\": expected 0 or 1, got 2"},
      {"r = Attention <is_causal = -1> (x, x, x)",
       "node \"r\" (Attention): attribute \"is_causal\": expected 0 or 1, got -1"},
      {"r = ReduceSum <keepdims = 2> (x)",
       "node \"r\" (ReduceSum): attribute \"keepdims\": expected 0 or 1, got 2"}};
  for (const auto& [node, message] : nodes) {
    Model model = Must(ParseModel(
        std::string("<ir_version: 10, opset_import: [\"\" : 24]> g (float[1, 2, 3, 4] x, "
                    "float[1, 3, 2] t) => (float[] r) { ") +
        node + " }"));
    EXPECT_EQ(std::string(InferShapes(model).message()), message);
  }
}

TEST(InferShapes, TakesTransposesOfAnyNumberButZero) {
  Model model = Must(ParseModel(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (float[3, 2] a, float[3, 4] b) => (float[] r) "
      "{ r = Gemm <transA = 2> (a, b) }"));
  ASSERT_TRUE(InferShapes(model).ok());
  EXPECT_EQ(model.graph->outputs()[0]->shape()->ToString(), "[2, 4]");
}

// A product of what is 3 and 2 at most may be 6.
TEST(SymbolicArithmetic, AProductOfLeastNumbersIsNoLeastNumber) {
  const Dim least = Dim::Symbol("min(3, x)"), product = least * Dim::Symbol("min(2, y)");
  EXPECT_TRUE(IsNonNegative(Dim(3) - least));
  EXPECT_FALSE(IsNonNegative(Dim(2) - least));
  EXPECT_FALSE(IsNonNegative(Dim(3) - product)) << product.ToString();
  EXPECT_FALSE(IsOneOrNone(Dim::Symbol("min(1, x)") * Dim::Symbol("z")));
}

}  // namespace
}  // namespace pagefuse
