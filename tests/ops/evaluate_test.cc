// SPDX-License-Identifier: Apache-2.0
// Evaluation of nodes, functions and models.
#include "pagefuse/ops/evaluate/evaluate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Model Parse(std::string_view text) { return Must(ParseModel(text)); }

Tensor Ints(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

TEST(EvaluateModel, RunsNodesInOrder) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 18]>
    g (int64[N] x) => (int64[M] y) <int64[1] two = {2}> {
      end = Shape (x)
      tail = Slice (x, two, end)
      y = Concat <axis = 0> (tail, x)
    })");
  const auto outputs = Must(EvaluateModel(model, {{"x", Ints({5, 6, 7})}}));
  EXPECT_THAT(outputs[0].values<int64_t>(), ElementsAre(7, 5, 6, 7));
}

TEST(EvaluateModel, RunsModelLocalFunctionsWithAttributes) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 18, "f" : 1]>
    g (float[2, 1] x) => (float[N] y) { y = f.Join <along = 1> (x) }
    <domain: "f", opset_import: ["" : 18]>
    Join <along> (x) => (y) { y = Concat <axis: int = @along> (x, x) })");
  const auto outputs = Must(EvaluateModel(model, {{"x", Tensor::Of<float>({2, 1}, {1, 2})}}));
  EXPECT_THAT(outputs[0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 1, 2, 2));
}

TEST(EvaluateModel, ChecksItsFeeds) {
  const Model model = Parse(
      "<ir_version: 10, opset_import: [\"\" : 18]> g (int64[2] x) => (int64[2] y) { y = Identity "
      "(x) }");
  const auto message = [&](const std::map<std::string, Tensor>& feeds) {
    return std::string(EvaluateModel(model, feeds).status().message());
  };
  EXPECT_EQ(message({}), "input \"x\" is not fed");
  EXPECT_EQ(message({{"x", Ints({1})}}), "input \"x\": expected shape [2], got [1]");
  EXPECT_EQ(message({{"x", Tensor::Of<float>({2}, {1, 2})}}),
            "input \"x\": expected int64, got float");
  EXPECT_EQ(message({{"x", Ints({1, 2})}, {"z", Ints({1})}}), "feed \"z\" is not an input");
}

TEST(EvaluateModel, QuantisesMinusZeroToMinusZero) {
  const Model model = Parse(R"(
    <ir_version: 10, opset_import: ["" : 23]>
    g (float[2] x) => (float8e4m3fn[2] a, float8e5m2[2] b, float4e2m1[2] c, float8e4m3fn[2] d, int8[2] e)
    <float scale = {2}, float8e4m3fn zero = {0}, int8 none = {0}> {
      a = QuantizeLinear <output_dtype = 17> (x, scale)
      b = QuantizeLinear <output_dtype = 19> (x, scale)
      c = QuantizeLinear <output_dtype = 23> (x, scale)
      d = QuantizeLinear (x, scale, zero)
      e = QuantizeLinear (x, scale, none)
    })");
  const auto outputs = Must(EvaluateModel(model, {{"x", Tensor::Of<float>({2}, {-0.0f, 0.0f})}}));
  const auto byte = [&](int output, int i) {
    return static_cast<const uint8_t*>(outputs[output].data())[i];
  };
  for (const int output : {0, 1, 3}) {
    EXPECT_EQ(byte(output, 0), 0x80) << output;
    EXPECT_EQ(byte(output, 1), 0) << output;
  }
  EXPECT_EQ(byte(2, 0), 0x08);  // two codes, the first in the low half
  EXPECT_EQ(byte(4, 0), 0);
}

TEST(EvaluateNode, RefusesOutputsOverTheLimit) {
  const Model model = Parse(
      "<ir_version: 10, opset_import: [\"\" : 18]> g (int64[1] n) => (float[N] y) "
      "{ y = ConstantOfShape (n) }");
  const auto outputs = EvaluateNode(*model.graph->nodes().front(), 18, {Ints({int64_t{1} << 40})});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outputs.status().message()), HasSubstr("over the limit"));
}

TEST(EvaluateNode, ReportsBadValuesWithThePlace) {
  const Model model = Parse(
      "<ir_version: 10, opset_import: [\"\" : 18]> g (int64[2] x, int64[1] i) => (int64[1] y) "
      "{ y = Gather (x, i) }");
  const auto outputs = EvaluateNode(*model.graph->nodes().front(), 18, {Ints({1, 2}), Ints({-3})});
  EXPECT_EQ(std::string(outputs.status().message()),
            "node \"y\" (Gather): input 1 \"indices\": index -3 is out of range [-2, 2)");
}

}  // namespace
}  // namespace pagefuse
