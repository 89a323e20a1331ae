// SPDX-License-Identifier: Apache-2.0
// Ops as text: what they declare, what they infer and compute, and what is said of texts that are wrong.
#include "pagefuse/passes/rewrite/text/op_text.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// The built-in ops and those of the text.
OpRegistry With(const std::string& text) {
  OpRegistry ops = OpRegistry::Global();
  auto parsed = Must(ParseOps({"acme.txt", text}));
  for (TextOp& op : parsed) EXPECT_TRUE(ops.Add(std::move(op.def)).ok());
  return ops;
}

std::string ErrorOf(const std::string& text) {
  const auto ops = ParseOps({"acme.txt", text});
  if (!ops.ok()) return std::string(StdView(ops.status().message()));
  const OpRegistry all = With(text);
  const ScopedOpRegistry scope(all);
  return std::string(StdView(CheckBodies({"acme.txt", text}).message()));
}

Model Parse(const std::string& text) { return Must(ParseModel(text)); }

constexpr char kScale[] = R"(# op: acme.Scale    x * factor, with an optional bias
# types: T in float, float16
# in-place: y = x
# metadata: bias
<domain: "acme", opset_import: ["" : 21]>
Scale <factor: float = 1.0, mode> (T[N, D] x, T[D] bias?) => (T[N, D] y) {
  constant = Constant <value_float: float = @factor> ()
  typed = CastLike (constant, x)
  scaled = Mul (x, typed)
  y = Add (scaled, bias)
}
# ---- without: bias
(x) => (y) {
  constant = Constant <value_float: float = @factor> ()
  typed = CastLike (constant, x)
  y = Mul (x, typed)
}
)";

TEST(OpText, DeclaresAnOp) {
  const auto ops = Must(ParseOps({"acme.txt", kScale}));
  ASSERT_EQ(ops.size(), 1u);
  const OpDef& op = ops.front().def;
  EXPECT_EQ(op.domain(), "acme");
  EXPECT_EQ(op.name(), "Scale");
  EXPECT_EQ(op.since(), 1);
  EXPECT_EQ(op.doc(), "x * factor, with an optional bias");
  EXPECT_THAT(op.types(),
              ElementsAre(Pair("T", ElementsAre(DataType::kFloat, DataType::kFloat16))));
  ASSERT_EQ(op.inputs().size(), 2u);
  EXPECT_EQ(op.inputs()[0].shape, "[N, D]");
  EXPECT_EQ(op.inputs()[0].kind, PortKind::kRequired);
  EXPECT_EQ(op.inputs()[1].type, "T");
  EXPECT_EQ(op.inputs()[1].kind, PortKind::kOptional);
  EXPECT_EQ(op.inputs()[1].role, PortRole::kMetadata);
  EXPECT_THAT(op.in_place(), ElementsAre(Pair(0, 0)));
  ASSERT_EQ(op.attributes().size(), 2u);
  EXPECT_TRUE(op.attributes()[0].required);  // "mode": without a default
  EXPECT_EQ(std::get<float>(op.attributes()[1].default_value), 1.0f);
  EXPECT_EQ(op.forms().size(), 2u);
  EXPECT_FALSE(ops.front().elementwise);
}

TEST(OpText, AnUntypedOpTakesWhatItsBodyGives) {
  const OpRegistry ops = With(R"(# op: acme.Halves
Halves (x) => (low, high) {
  last = Constant <value_int: int = -1> ()
  low, high = Split <axis = -1, num_outputs = 2> (x)
}
)");
  const ScopedOpRegistry scope(ops);
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (float16[rows, 6] x) => (a, b) { a, b = acme.Halves (x) })");
  ASSERT_TRUE(InferShapes(model).ok());
  for (const Value* output : model.graph->outputs()) {
    EXPECT_EQ(output->dtype(), DataType::kFloat16);
    EXPECT_EQ(output->shape()->ToString(), "[rows, 3]");
  }
}

TEST(OpText, SizesThatABodyMakesUpAreThoseOfOneCall) {
  const OpRegistry ops = With(R"(# op: acme.Marked
Marked (x) => (places) { places = NonZero (x) }
)");
  const ScopedOpRegistry scope(ops);
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (bool[n] x, bool[n] y) => (a, b) { a = acme.Marked (x)  b = acme.Marked (y) })");
  ASSERT_TRUE(InferShapes(model).ok());
  const Shape& a = *model.graph->outputs()[0]->shape();
  const Shape& b = *model.graph->outputs()[1]->shape();
  EXPECT_EQ(a.rank(), 2);
  EXPECT_TRUE(a[1].known());
  EXPECT_FALSE(ProvablyEqual(a[1], b[1])) << a.ToString() << b.ToString();
}

TEST(OpText, PortsAreChecked) {
  const OpRegistry ops = With(kScale);
  const ScopedOpRegistry scope(ops);
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (float[2, 3] x, float[4] b) => (float[2, 3] y) { y = acme.Scale <mode = "m"> (x, b) })");
  EXPECT_EQ(InferShapes(model).message(),
            "node \"y\" (acme.Scale): input 1 \"bias\": expected [D] with D = 3 of \"x\", got [4]");
}

TEST(OpText, WhatPortsAndBodySayDifferentlyIsAnError) {
  const OpRegistry ops = With(R"(# op: acme.Wrong
Wrong (float[N, D] x) => (float[N, 3, K] y) { y = Flatten (x) }
)");
  const ScopedOpRegistry scope(ops);
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (float[2, 3] x) => (y) { y = acme.Wrong (x) })");
  EXPECT_THAT(std::string(InferShapes(model).message()),
              HasSubstr("node \"y\" (acme.Wrong): output 0 \"y\": the ports say [2, 3, "));
}

TEST(OpText, RunsByItsBody) {
  const OpRegistry ops = With(kScale);
  const ScopedOpRegistry scope(ops);
  const Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (float[2, 2] x, float[2] b) => (float[2, 2] y, float[2, 2] z) {
        y = acme.Scale <factor = 2.0, mode = "m"> (x, b)
        z = acme.Scale <mode = "m"> (x)
      })");
  const auto outputs = Must(EvaluateModel(model, {{"x", Tensor::Of<float>({2, 2}, {1, 2, 3, 4})},
                                                  {"b", Tensor::Of<float>({2}, {10, 20})}}));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(12, 24, 16, 28));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(OpText, PointsAtTheCharacter) {
  EXPECT_EQ(ErrorOf("# op: acme.Op\nOp (float[N] x) => (float[N] y) {\n  y = Neg x\n}\n"),
            "acme.txt:3:11: expected \"(\", got \"x\"\n  y = Neg x\n          ^");
  EXPECT_EQ(
      ErrorOf("# op: acme.Op\n# types: T in float, flaot\nOp (T x) => (T y) { y = Neg (x) }\n"),
      "acme.txt:2:22: there is no type \"flaot\"\n# types: T in float, flaot\n"
      "                     ^");
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (float[N x) => (y) { y = Neg (x) }\n"),
              HasSubstr("expected \"]\", got the end"));
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (T[N] x) => (y) { y = Neg (x) }\n"),
              HasSubstr("acme.txt:1:7: op \"Op\": input \"x\": there is no type \"T\""));
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (x, w?) => (y) { y = Neg (x) }\n# ---- without: w\n"
                      "(x, w) => (y) { y = Neg (x) }\n"),
              HasSubstr("acme.txt:4:1: \"w\" is left out"));
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (x, w?) => (y) { y = Neg (x) }\n# ---- without: w\n"
                      "(x) => (y) { y = Neg x }\n"),
              HasSubstr("acme.txt:4:22: expected \"(\", got \"x\""));
}

TEST(OpText, KnowsItsNames) {
  const auto with = [](const std::string& key) {
    return ErrorOf("# op: acme.Op\n" + key + "\nOp (x, w) => (y) { y = Add (x, w) }\n");
  };
  EXPECT_THAT(with("# inplace: y = x"),
              HasSubstr("acme.txt:2:3: there is no key \"inplace\"; similar names: \"in-place\""));
  EXPECT_THAT(with("# in-place: y = z"), HasSubstr("acme.txt:2:17: there is no input \"z\""));
  EXPECT_THAT(with("# alias: x = x"), HasSubstr("acme.txt:2:10: there is no output \"x\""));
  EXPECT_THAT(with("# metadata: slots"), HasSubstr("acme.txt:2:13: there is no input \"slots\""));
  EXPECT_THAT(with("# elementwise: no"), HasSubstr("acme.txt:2:16: expected nothing, or yes"));
  const auto called = [](const std::string& name, const std::string& function) {
    return ErrorOf("# op: " + name + "\n" + function + " (x) => (y) { y = Neg (x) }\n");
  };
  EXPECT_THAT(called("Op", "Op"), HasSubstr(":1:7: expected the op's domain before its name"));
  EXPECT_THAT(called("acme.Op", "Other"),
              HasSubstr(":1:7: the function below is called \"Other\""));
  for (const std::string domain : {"pagefuse", "pagefuse.onnx", "ai.onnx", "ai.onnx.ml"}) {
    EXPECT_THAT(called(domain + ".Op", "Op"),
                HasSubstr("domain \"" + domain + "\" is not one that plug-ins may add ops to"));
  }
  EXPECT_THAT(called("acme.Op", "<domain: \"other\"> Op"), HasSubstr("is of domain \"other\""));
}

TEST(OpText, BodiesCallWhatIsKnown) {
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (x) => (y) {\n  y = Nge (x)\n}\n"),
              HasSubstr("acme.txt:3:3: node \"y\" (Nge): no op \"Nge\" in domain \"\""));
  EXPECT_THAT(ErrorOf("# op: acme.Op\nOp (x) => (y) { y = acme.Op (x) }\n"),
              HasSubstr("a body may call ops that are declared above it alone"));
  EXPECT_EQ(ErrorOf("# op: acme.One\nOne (x) => (y) { y = Neg (x) }\n"
                    "# op: acme.Two\nTwo (x) => (y) { z = acme.One (x)  y = acme.One (z) }\n"),
            "");
}

}  // namespace
}  // namespace pagefuse
