// SPDX-License-Identifier: Apache-2.0
// Cases of the ops that run graphs.
#include <memory>
#include <string>

#include "op_test.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse::onnx_ops {
namespace {

// The graph of a model in text.
std::shared_ptr<Graph> Body(const std::string& text) {
  absl::StatusOr<Model> model = ParseModel("<ir_version: 10, opset_import: [\"\" : 24]> " + text);
  PF_CHECK(model.ok());
  return model->graph;
}

}  // namespace

OpCases IfCases() {
  const auto branches = [] {
    return AttributeList{
        {"then_branch", Body("g () => (float[1] y) { y = Constant <value_floats = [1.0]> () }")},
        {"else_branch",
         Body("g () => (float[2] y) { y = Constant <value_floats = [2.0, 3.0]> () }")}};
  };
  return OpCases("If")
      .Add("then", {Bools({}, {true})}, {Floats({1}, {1})}, branches())
      .Add("else", {Bools({1}, {false})}, {Floats({2}, {2, 3})}, branches());
}

OpCases LoopCases() {
  const char* doubles = R"(
    g (int64 i, bool go, float[N] x) => (bool again, float[M] twice, float[N] seen) {
      twice = Concat <axis = 0> (x, x)
      seen = ReduceSum <keepdims = 1> (x)
      two = Constant <value_int = 2> ()
      again = Less (i, two)
    })";
  const char* counts = R"(
    g (int64 i, bool go) => (bool again, int64 square) {
      square = Mul (i, i)
      again = Identity (go)
    })";
  return OpCases("Loop")
      .Add("state_that_grows_until_the_condition_fails",
           {Tensor(), Bools({}, {true}), Floats({1}, {1})},
           {Floats({8}, {1, 1, 1, 1, 1, 1, 1, 1}), Floats({3, 1}, {1, 2, 4})},
           {{"body", Body(doubles)}})
      .Add("a_number_of_times_without_state", {Ints({}, {4})}, {Ints({4}, {0, 1, 4, 9})},
           {{"body", Body(counts)}})
      .Add("never", {Ints({}, {4}), Bools({}, {false})}, {Ints({0}, {})}, {{"body", Body(counts)}});
}

OpCases ScanCases() {
  const char* sums = R"(
    g (float[2] sum, float[2] x) => (float[2] next, float[2] seen) {
      next = Add (sum, x)
      seen = Identity (next)
    })";
  const Tensor start = Floats({2}, {0, 0});
  const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  return OpCases("Scan")
      .Add("sums", {start, x}, {Floats({2}, {9, 12}), Floats({3, 2}, {1, 2, 4, 6, 9, 12})},
           {{"body", Body(sums)}, {"num_scan_inputs", 1}})
      .Add("axes_and_directions", {start, Floats({2, 3}, {1, 2, 3, 10, 20, 30})},
           {Floats({2}, {6, 60}), Floats({2, 3}, {6, 5, 3, 60, 50, 30})},
           {{"body", Body(sums)},
            {"num_scan_inputs", 1},
            {"scan_input_axes", std::vector<int64_t>{1}},
            {"scan_input_directions", std::vector<int64_t>{1}},
            {"scan_output_axes", std::vector<int64_t>{-1}},
            {"scan_output_directions", std::vector<int64_t>{1}}});
}

OpCases FlexAttentionCases() {
  const Tensor q = Floats({1, 1, 2, 1}, {0, 0});
  const Tensor v = Floats({1, 1, 2, 1}, {2, 4});
  const auto graph = [](const char* op) {
    return Body(std::string("g (float[B, H, L, S] x) => (float[B, H, L, S] y) { ") + op + " }");
  };
  return OpCases("ai.onnx.preview.FlexAttention")
      .Add("mean_of_values", {q, q, v}, {Floats({1, 1, 2, 1}, {3, 3})})
      .Add("modified_scores", {q, q, v}, {Floats({1, 1, 2, 1}, {2, 2})},
           {{"score_mod", graph("o = Constant <value_floats = [0.0, -inf]> () "
                                "y = Add (x, o)")}})
      .Add("modified_probabilities", {q, q, v}, {Floats({1, 1, 2, 1}, {6, 6})},
           {{"prob_mod", graph("y = Add (x, x)")}})
      .Add("heads_share_keys", {Floats({1, 2, 1, 1}, {0, 100}), Floats({1, 1, 2, 1}, {0, 1}), v},
           {Floats({1, 2, 1, 1}, {3, 4})}, {{"scale", 1.0f}});
}

}  // namespace pagefuse::onnx_ops
