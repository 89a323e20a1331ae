// Cases of the ops that run graphs.
#include <memory>
#include <string>

#include "op_test.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text.h"

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
    return std::vector<std::pair<std::string, AttributeValue>>{
        {"then_branch", Body("g () => (float[1] y) { y = Constant <value_floats = [1.0]> () }")},
        {"else_branch",
         Body("g () => (float[2] y) { y = Constant <value_floats = [2.0, 3.0]> () }")}};
  };
  return OpCases("If")
      .Add({.name = "then",
            .inputs = {Bools({}, {true})},
            .attributes = branches(),
            .outputs = {Floats({1}, {1})}})
      .Add({.name = "else",
            .inputs = {Bools({1}, {false})},
            .attributes = branches(),
            .outputs = {Floats({2}, {2, 3})}});
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
      .Add({.name = "state_that_grows_until_the_condition_fails",
            .inputs = {Tensor(), Bools({}, {true}), Floats({1}, {1})},
            .attributes = {{"body", Body(doubles)}},
            .outputs = {Floats({8}, {1, 1, 1, 1, 1, 1, 1, 1}), Floats({3, 1}, {1, 2, 4})}})
      .Add({.name = "a_number_of_times_without_state",
            .inputs = {Ints({}, {4})},
            .attributes = {{"body", Body(counts)}},
            .outputs = {Ints({4}, {0, 1, 4, 9})}})
      .Add({.name = "never",
            .inputs = {Ints({}, {4}), Bools({}, {false})},
            .attributes = {{"body", Body(counts)}},
            .outputs = {Ints({0}, {})}});
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
      .Add({.name = "sums",
            .inputs = {start, x},
            .attributes = {{"body", Body(sums)}, {"num_scan_inputs", int64_t{1}}},
            .outputs = {Floats({2}, {9, 12}), Floats({3, 2}, {1, 2, 4, 6, 9, 12})}})
      .Add({.name = "axes_and_directions",
            .inputs = {start, Floats({2, 3}, {1, 2, 3, 10, 20, 30})},
            .attributes = {{"body", Body(sums)},
                           {"num_scan_inputs", int64_t{1}},
                           {"scan_input_axes", std::vector<int64_t>{1}},
                           {"scan_input_directions", std::vector<int64_t>{1}},
                           {"scan_output_axes", std::vector<int64_t>{-1}},
                           {"scan_output_directions", std::vector<int64_t>{1}}},
            .outputs = {Floats({2}, {6, 60}), Floats({2, 3}, {6, 5, 3, 60, 50, 30})}});
}

OpCases FlexAttentionCases() {
  const Tensor q = Floats({1, 1, 2, 1}, {0, 0});
  const Tensor v = Floats({1, 1, 2, 1}, {2, 4});
  const auto graph = [](const char* op) {
    return Body(std::string("g (float[B, H, L, S] x) => (float[B, H, L, S] y) { ") + op + " }");
  };
  return OpCases("ai.onnx.preview.FlexAttention")
      .Add({.name = "mean_of_values",
            .inputs = {q, q, v},
            .outputs = {Floats({1, 1, 2, 1}, {3, 3})}})
      .Add({.name = "modified_scores",
            .inputs = {q, q, v},
            .attributes = {{"score_mod", graph("o = Constant <value_floats = [0.0, -inf]> () "
                                               "y = Add (x, o)")}},
            .outputs = {Floats({1, 1, 2, 1}, {2, 2})}})
      .Add({.name = "modified_probabilities",
            .inputs = {q, q, v},
            .attributes = {{"prob_mod", graph("y = Add (x, x)")}},
            .outputs = {Floats({1, 1, 2, 1}, {6, 6})}})
      .Add({.name = "heads_share_keys",
            .inputs = {Floats({1, 2, 1, 1}, {0, 100}), Floats({1, 1, 2, 1}, {0, 1}), v},
            .attributes = {{"scale", 1.0f}},
            .outputs = {Floats({1, 2, 1, 1}, {3, 4})}});
}

}  // namespace pagefuse::onnx_ops
