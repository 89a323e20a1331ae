// SPDX-License-Identifier: Apache-2.0
// Cases of Elementwise: a chain by its tiles against its graph run node by node.
#include <memory>
#include <string>
#include <utility>

#include "op_test.h"
#include "written_out_gelu.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse::pagefuse_ops {
namespace {

// The graph of a model in text.
std::shared_ptr<Graph> Body(const std::string& text) {
  absl::StatusOr<Model> model =
      ParseModel("<ir_version: 10, opset_import: [\"\" : 24]> chain " + text);
  PF_CHECK(model.ok());
  return model->graph;
}

OpCase Case(std::string name, const std::string& body, std::vector<Tensor> inputs) {
  return {
      .name = std::move(name), .inputs = std::move(inputs), .attributes = {{"body", Body(body)}}};
}

OpCase Wrong(const std::string& body, std::vector<Tensor> inputs) {
  return Case("wrong", body, std::move(inputs));
}

const std::string kGelu = StrCat("(x, up, three, a, b, one, half) => (y) {", kWrittenOutGelu, "}");

OpCase Gelu(std::vector<int64_t> dims, DataType type = DataType::kFloat) {
  const std::string name = StrCat("gelu_", DataTypeName(type), DimsToString(dims));
  std::vector<Tensor> inputs = {Random(type, dims, Normal{0, 2}, 1),
                                Random(type, dims, Normal{0, 1}, 2)};
  for (const float number : {3.0f, 0.044715f, 0.79788456f, 1.0f, 0.5f}) {
    inputs.push_back(As(type, Floats({}, {number})));
  }
  return Case(name, kGelu, std::move(inputs));
}

// A norm's end: rows by their own scales, columns by weights, and a sum.
OpCase ScaledRows(std::vector<int64_t> dims, DataType type = DataType::kFloat) {
  std::vector<int64_t> rows = dims;
  rows.back() = 1;
  const std::vector<int64_t> columns = {dims.back()};
  return Case(StrCat("scaled_rows_", DataTypeName(type), DimsToString(dims)), R"(
      (x, variance, weight, shift) => (y) {
        root = Sqrt (variance)
        scale = Reciprocal (root)
        normal = Mul (x, scale)
        weighted = Mul (weight, normal)
        y = Add (weighted, shift)
      })",
              {Random(type, dims, Normal{0, 1}, 3), Random(type, rows, Uniform{0.5, 2}, 4),
               Random(type, columns, Normal{1, 1}, 5), Random(type, dims, Normal{0, 1}, 6)});
}

OpCase Masked(std::vector<int64_t> condition, std::vector<int64_t> dims) {
  const Tensor draw = Random(DataType::kFloat, std::move(condition), Normal{0, 1}, 7);
  return Case(
      StrCat("masked_", DimsToString(draw.dims()), DimsToString(dims)),
      R"((draw, x, filler) => (y) <float zero = {0}> {
                   mask = Less (draw, zero)
                   nan = IsNaN (x)
                   some = Or (mask, nan)
                   y = Where (some, filler, x)
                 })",
      {draw, Random(DataType::kFloat, std::move(dims), Normal{0, 1}, 8), Floats({}, {-1e9f})});
}

}  // namespace

OpCases ElementwiseCases() {
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4});
  OpCases cases("pagefuse.Elementwise");
  OpCase by_hand = Case("by_hand", "(x, s) => (y) { t = Mul (x, s)  y = Sub (t, x) }",
                        {x, Floats({2, 1}, {2, 3})});
  by_hand.outputs = {Floats({2, 2}, {1, 2, 6, 8})};
  OpCase integers =
      Case("integers_are_checked_as_a_whole", "(x, d) => (y) { q = Div (x, d)  y = Add (q, q) }",
           {Ints({2, 2}, {7, 8, 9, 10}), Ints({2}, {2, 3})});
  integers.outputs = {Ints({2, 2}, {6, 4, 8, 6})};
  cases.Add(by_hand).Add(integers);
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{}, {1}, {0, 3}, {3, 7}, {1, 4095}, {2, 4097}, {3, 1, 9001}, {70000}}) {
    cases.Add(Gelu(dims));
  }
  cases.Add(Gelu({3, 1000}, DataType::kFloat16)).Add(Gelu({3, 5000}, DataType::kBfloat16));
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{2, 1}, {5, 0}, {300, 31}, {3, 511}, {3, 4100}, {2, 5, 7, 65}}) {
    cases.Add(ScaledRows(dims));
  }
  cases.Add(ScaledRows({9, 600}, DataType::kDouble))
      .Add(ScaledRows({2, 9, 33}, DataType::kFloat16));
  cases.Add(Masked({2, 1, 40, 50}, {2, 3, 40, 50}))
      .Add(Masked({4097}, {3, 4097}))
      .Add(Masked({3, 1}, {3, 4097}));
  const std::string types = R"((h, i) => (y) {
    f = Cast <to = 1> (h)
    g = Cast <to = 1> (i)
    s = Mul (f, g)
    c = Clip (s, "", g)
    y = Cast <to = 10> (c)
  })";
  cases.Add(Case("types_change", types,
                 {Random(DataType::kFloat16, {3, 2000}, Normal{0, 1}, 9), Ints({1}, {2})}));
  return cases
      .Rejects(Wrong("(x) => (y) { t = Neg (x)  y = Softmax (t) }", {x}),
               "node \"y\" (Softmax) is no elementwise op")
      .Rejects(Wrong("(x) => (x) { y = Neg (x) }", {x}),
               "expected one output, computed by one of its nodes")
      .Rejects(Wrong("(x, s) => (y) { y = Neg (x) }", {x}), "expected 1 inputs")
      .Rejects(Wrong("(x) => (y, t) { t = Neg (x)  y = Neg (t) }", {x}), "expected one output")
      .Rejects(Wrong("(x, s) => (y) { t = Exp (s)  y = Neg (x) }", {x, Floats({3}, {1, 2, 3})}),
               "no node reads \"t\"")
      .Rejects(Wrong("(x, s) => (y) { y = Neg (x) }", {x, x}), "no node reads \"s\"")
      .Rejects(Wrong("(x, s) => (y) { y = Clip (x, s) }", {Floats({}, {1}), Floats({1}, {2})}),
               "its graph gives [], its inputs broadcast to [1]")
      .Rejects(Wrong("(x, s) => (y) { y = Add (x, s) }", {x, Floats({3}, {1, 2, 3})}),
               "node \"y\" (Add)")
      .Rejects(Wrong("(float16[N, M] x) => (y) { y = Neg (x) }", {x}),
               "expected type float16 as its graph says, got float")
      .Rejects({.name = "no_graph", .inputs = {x}, .attributes = {{"body", 1}}},
               "attribute \"body\": expected a graph");
}

}  // namespace pagefuse::pagefuse_ops
