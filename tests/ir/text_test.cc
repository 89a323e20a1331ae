// SPDX-License-Identifier: Apache-2.0
// The text form of models, values and initialisers: what it reads, and that it prints what it read.
#include "pagefuse/ir/text/text.h"

#include "must.h"
#include "text_check.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/packed_types.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/tensor/absent_tensor.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

// --- whole models ---

TEST(Text, PrintsASmallModelAsItWasWritten) {
  ExpectFixedPoint(R"(<ir_version: 8, opset_import: ["" : 17, "pagefuse" : 1]>
mlp (float[T, 8] gate, float[T, 8] up) => (float[T, 8] y) {
  s = Sigmoid (gate)
  silu = Mul (s, gate)
  y = Mul (up, silu)
}
)");
}

TEST(Text, KeepsEveryEntryOfTheHeader) {
  const Model model = Parse(R"(
    <ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1], producer_name: "p", producer_version: "2.0",
     domain: "d", model_version: 7, doc_string: "what it \"is\"", metadata_props: ["k": "v", "k2": ""],
     unknown_fields: "a00101">
    g () => () {})");
  EXPECT_EQ(model.ir_version, 9);
  EXPECT_EQ(model.OpsetVersion("com.microsoft"), 1);
  EXPECT_EQ(model.producer_name, "p");
  EXPECT_EQ(model.producer_version, "2.0");
  EXPECT_EQ(model.domain, "d");
  EXPECT_EQ(model.model_version, 7);
  EXPECT_EQ(model.doc_string, "what it \"is\"");
  EXPECT_THAT(model.metadata, ElementsAre(std::pair("k", "v"), std::pair("k2", "")));
  EXPECT_EQ(model.unknown_fields, "\xa0\x01\x01");
  EXPECT_EQ(PrintModel(Parse(PrintModel(model))), PrintModel(model));
}

TEST(Text, TakesAModelWithoutHeader) {
  const Model model = Parse("g (float x) => (float y) { y = Relu (x) }");
  EXPECT_TRUE(model.opset_imports.empty());
  EXPECT_EQ(model.graph->num_nodes(), 1);
}

TEST(Text, PutsLongSignaturesOnSeveralLines) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: ["" : 18]>
"a graph with a long name" (
  float[batch, sequence, hidden] "model/layers.0/input",
  float[batch, sequence, hidden] residual
) => (
  float[batch, sequence, hidden] sum
) {
  sum = Add ("model/layers.0/input", residual)
}
)");
}

TEST(Text, LinksNodesAndValues) {
  const Model model = Parse("g (float x) => (float y) { t = Relu (x)  y = Add (t, t) }");
  const Value* t = model.graph->FindValue("t");
  EXPECT_EQ(t->producer()->op_type(), "Relu");
  EXPECT_EQ(t->uses().size(), 2u);
  EXPECT_TRUE(Verify(*model.graph).ok());
}

// --- values and types ---

TEST(Text, ReadsDims) {
  const Model model = Parse("g (float[2, N, ?, past + seq, \"past + seq\", 2*(N - 1)] x) => () {}");
  const Shape& shape = *model.graph->inputs()[0]->shape();
  EXPECT_EQ(shape[0], Dim(2));
  EXPECT_EQ(shape[1], Dim::Symbol("N"));
  EXPECT_FALSE(shape[2].known());
  EXPECT_EQ(shape[3], Dim::Symbol("past") + Dim::Symbol("seq"));
  EXPECT_EQ(shape[4], shape[3]);
  EXPECT_EQ(shape[5], Dim::Symbol("N") * Dim(2) - Dim(2));
}

TEST(Text, PrintsDimExpressionsInQuotesAsOnnxKeepsThem) {
  EXPECT_THAT(Print("g (float[seq + past, 4*(seq//4), ?, -1] x) => () {}"),
              ::testing::HasSubstr("float[\"past + seq\", \"4*(seq//4)\", ?, -1] x"));
}

TEST(Text, TellsScalarsFromUnknownRank) {
  const Model model = Parse("g (float a, float[] b, c, undefined[2] d) => () {}");
  const auto& inputs = model.graph->inputs();
  EXPECT_EQ(inputs[0]->shape()->rank(), 0);
  EXPECT_EQ(inputs[1]->dtype(), DataType::kFloat);
  EXPECT_FALSE(inputs[1]->shape().has_value());
  EXPECT_EQ(inputs[2]->dtype(), DataType::kUndefined);
  EXPECT_FALSE(inputs[2]->shape().has_value());
  EXPECT_EQ(inputs[3]->shape()->rank(), 1);
  ExpectFixedPoint(
      "<ir_version: 10, opset_import: []>\ng (float a, float[] b, c, undefined[2] d) => () {\n}\n");
}

TEST(Text, KnowsEveryElementType) {
  for (int32_t code = 1; code <= kLastDataType; ++code) {
    const auto type = static_cast<DataType>(code);
    const std::string text = "g (" + std::string(DataTypeName(type)) + "[2] x) => () {}";
    EXPECT_EQ(Parse(text).graph->inputs()[0]->dtype(), type);
    Print(text);
  }
}

TEST(Text, KeepsTypesThatAreNoTensors) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: []>
g (seq(float[N]) a, optional(seq(int8)) b, map(string, float[]) c, sparse_tensor(int8) d) => () {
}
)");
  ExpectFixedPoint(
      "<ir_version: 10, opset_import: []>\ng (opaque(\"d\", \"n\") a, opaque(\"n\") b, opaque() c) "
      "=> () {\n}\n");
}

TEST(Text, KeepsTheVariantOfDims) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: []>
g (float["seq + past", -1] x) => () {
}
)");
  const Model model = Parse("g (float[\"seq + past\", -1] x) => () {}");
  EXPECT_EQ((*model.graph->inputs()[0]->shape())[0], Dim::Symbol("past") + Dim::Symbol("seq"));
  EXPECT_FALSE((*model.graph->inputs()[0]->shape())[1].known());
}

TEST(Text, KeepsTypesThatHaveNoWords) {
  // A float tensor with the denotation "x", dims without an element type, and a denotation alone.
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: []>
g (proto("0a0408011200320178") a, proto("0a021200") b, proto("320178") c) => () {
}
)");
  const Model model = Parse("g (proto(\"0a0408011200320178\") a) => () {}");
  EXPECT_EQ(model.graph->inputs()[0]->dtype(), DataType::kFloat);
}

TEST(Text, QuotesNamesThatAreNoIdentifiersOrLookLikeTypes) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: ["" : 18]>
"a b" (float "x/y:0", float "float") => (float "out.0") {
  ["/layers.3/mlp/Mul"] "t#1" = Mul ("x/y:0", "float")
  "out.0" = "my-domain"."Op 2":"v 1" ("t#1")
}
)");
}

TEST(Text, KeepsDocStringsAndMetadata) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: ["" : 18]>
g (float x <doc_string: "in">) => (float y) <doc_string: "a graph", metadata_props: ["a": "b"]>
<
  float t <metadata_props: ["k": "v"], unknown_fields: "0801">
> {
  t = Relu (x)
  y = Cast <to = 1 <doc_string: "float">> (t) <doc_string: "n", metadata_props: ["k": "v"]>
}
)");
}

TEST(Text, KeepsValueInfosOfOutputsInputsAndInitialisers) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: ["" : 18]>
g (float x) => (float y)
<
  float w = {1},
  float x,
  float w,
  float y
> {
  y = Add (x, w)
}
)");
}

TEST(Text, MayLeaveOutValueInfos) {
  const Model model = Parse("g (float x) => (float y) <float t> { t = Relu (x) y = Relu (t) }");
  EXPECT_THAT(PrintModel(model), ::testing::HasSubstr("float t"));
  EXPECT_THAT(PrintModel(model, {.value_infos = false}),
              ::testing::Not(::testing::HasSubstr("float t")));
}

// --- initialisers ---

TEST(Text, ReadsInitialisers) {
  const Model model = Parse(R"(
    g (float[2] x = {1, 2}) => () <int64[2, 1] a = {-3, 4}, string s = {"q\"\\n"}, float[0] e = {}> {})");
  const Graph& g = *model.graph;
  EXPECT_THAT(g.FindValue("x")->initializer()->values<float>(), ElementsAre(1, 2));
  EXPECT_FALSE(g.FindValue("x")->IsConstant());
  EXPECT_THAT(g.FindValue("a")->initializer()->values<int64_t>(), ElementsAre(-3, 4));
  EXPECT_THAT(g.FindValue("a")->initializer()->dims(), ElementsAre(2, 1));
  EXPECT_THAT(g.FindValue("s")->initializer()->strings(), ElementsAre("q\"\\n"));
  EXPECT_EQ(g.FindValue("e")->initializer()->size(), 0);
  EXPECT_TRUE(Verify(g).ok());
}

TEST(Text, ReadsElementsOfSmallFloatsAsTheirBits) {
  const Model model = Parse(
      "g () => () <float16 h = {15360}, float8e4m3fn f = {56}, float4e2m1[3] q = {1, 2, 15}> {}");
  EXPECT_EQ(*static_cast<const uint16_t*>(model.graph->FindValue("h")->initializer()->data()),
            0x3c00);
  EXPECT_EQ(*static_cast<const uint8_t*>(model.graph->FindValue("f")->initializer()->data()), 0x38);
  const auto* q = static_cast<const uint8_t*>(model.graph->FindValue("q")->initializer()->data());
  EXPECT_EQ(q[0], 0x21);
  EXPECT_EQ(q[1], 0x0f);
}

TEST(Text, KeepsElementsAtTheEndsOfTheirRange) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: []>
g () => ()
<
  int4[3] i4 = {-8, 7, -1},
  uint4[2] u4 = {0, 15},
  int8[2] i8 = {-128, 127},
  uint8[2] u8 = {0, 255},
  int16[2] i16 = {-32768, 32767},
  uint16 u16 = {65535},
  int32[2] i32 = {-2147483648, 2147483647},
  uint32 u32 = {4294967295},
  int64[2] i64 = {-9223372036854775808, 9223372036854775807},
  uint64 u64 = {18446744073709551615},
  bool[2] b = {0, 1},
  float16 h = {65535},
  bfloat16 w = {32640},
  float8e8m0 e = {255},
  float[7] f = {3.4028235e+38, 1e-45, -0, inf, -inf, nan, -nan},
  float n = {nan(2143289345)},
  double[2] d = {1.7976931348623157e+308, 5e-324},
  complex64[2] c = {1, 2, 3, -4},
  complex128 z = {0.5, inf}
> {
}
)");
}

TEST(Text, KeepsADefaultOfAnInputWithOtherDims) {
  const std::string text = R"(<ir_version: 10, opset_import: []>
g (float[N] x) => ()
<
  float[2] x = {1, 2}
> {
}
)";
  ExpectFixedPoint(text);
  EXPECT_TRUE(Verify(*Parse(text).graph).ok());
}

TEST(Text, KeepsTheUnknownRankOfAnInputWithDefault) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: []>
g (float[] x) => ()
<
  float[2] x = {1, 2}
> {
}
)");
}

TEST(Text, MayLeaveOutElements) {
  const Model model = Parse("g () => () <float[3] a = {1, 2, 3}, float[2] b = {1, 2}> {}");
  const std::string text = PrintModel(model, {.max_elements = 2});
  EXPECT_THAT(text, ::testing::HasSubstr("float[3] a = ...,"));
  EXPECT_THAT(text, ::testing::HasSubstr("float[2] b = {1, 2}"));
  EXPECT_THAT(text, ::testing::StartsWith("# 1 tensor is left out, as \"...\": "));
}

TEST(Text, ReadsWhatIsLeftOutAsTensorsWithoutData) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[3] x) => (float[3] y) <float[3] a = ..., int64[1] b = {1}> {
      c = Constant <value = float[2, 2] ...> ()
      y = Add (x, a)
    })";
  const Model model = Parse(text);
  const Tensor& a = *model.graph->FindValue("a")->initializer();
  EXPECT_TRUE(IsAbsent(a));
  EXPECT_EQ(a.dtype(), DataType::kFloat);
  EXPECT_EQ(a.dims(), std::vector<int64_t>{3});
  EXPECT_FALSE(IsAbsent(*model.graph->FindValue("b")->initializer()));
  EXPECT_EQ(CheckDataPresent(model).message(),
            "initializer \"a\" and 1 others: the data was left out of the text that the model was "
            "read from, or its file is not there");
  ExpectFixedPoint(PrintModel(model));
  EXPECT_THAT(PrintModel(model), ::testing::StartsWith("# 2 tensors are left out"));
  EXPECT_EQ(ExportModel(model).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Text, PrintsStringsWhateverTheirNumber) {
  const Model model = Parse(R"(g () => () <string[2] a = {"one", "two"}> {})");
  EXPECT_THAT(PrintModel(model, {.max_elements = 0}),
              ::testing::HasSubstr(R"(string[2] a = {"one", "two"})"));
}

TEST(Text, RefusesWhatCannotBeLeftOut) {
  EXPECT_FALSE(ParseModel("g () => () <string[2] a = ...> {}").ok());
  EXPECT_FALSE(ParseModel("g () => () <float[N] a = ...> {}").ok());
  EXPECT_FALSE(ParseModel("g () => () <float[2] a = ..> {}").ok());
  EXPECT_FALSE(ParseModel("g () => () <float[1000000000000000000] a = ...> {}").ok());
}

// Without protobuf the text means the same.
TEST(PlainText, IsReadAsOtherTextIs) {
  const std::string text =
      R"(<opset_import: ["" : 23]> Body <scale, axis: int = 1> (float[2, N + 1] x, w) => (y) {
    one = Constant <value = float[2] one {1.5, -0.0}> ()
    sizes = Constant <value_ints: ints = []> ()
    s = Softmax <axis: int = @axis> (x)
    y = If <then_branch = a () => (t) { t = Add (s, one) }, else_branch = b () => (e) { e = Identity (w) }> (w)
  })";
  const auto plain = Must(ParsePlainFunction(text));
  const auto full = Must(ParseFunction(text));
  const Value& x = *plain.body->inputs()[0];
  EXPECT_EQ(x.dtype(), DataType::kFloat);
  EXPECT_EQ(x.shape(), full.body->inputs()[0]->shape());
  const std::string named = " one {";
  std::string expected = PrintFunction(full);
  expected.erase(expected.find(named), named.size() - 2);  // names of constants go
  EXPECT_EQ(PrintFunction(plain), expected);
}

TEST(PlainText, HasNoTypesButThoseOfTensors) {
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"F (seq(float) x) => () {}", "expected the type of a tensor"},
           {"F (proto(\"\") x) => () {}", "expected the type of a tensor"},
           {"F (x) => () { y = A <t = float[2]> () }", "expected the data of a tensor"},
           {"F (x) => () { y = A <t: type_protos = []> () }", "expected no list of types"},
           {"F (x) => () { y = A <t: proto = \"\"> () }", "expected the type of an attribute"}}) {
    EXPECT_THAT(std::string(ParsePlainFunction(text).status().message()),
                ::testing::HasSubstr(what))
        << text;
    EXPECT_TRUE(ParseFunction(text).ok()) << ParseFunction(text).status();
  }
}

}  // namespace
}  // namespace pagefuse
