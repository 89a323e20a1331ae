// Cases of LinearAttention and CausalConvWithState.
#include <cmath>
#include <string>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

std::vector<std::pair<std::string, AttributeValue>> Heads(int64_t q, int64_t kv, const char* rule) {
  return {{"q_num_heads", q}, {"kv_num_heads", kv}, {"update_rule", std::string(rule)}};
}

}  // namespace

OpCases LinearAttentionCases() {
  const Tensor two = Floats({1, 2, 1}, {2, 3});
  const Tensor ones = Floats({1, 2, 1}, {1, 1});
  return OpCases("LinearAttention")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add({.name = "sums_of_values",
            .inputs = {ones, ones, two},
            .attributes = Heads(1, 1, "linear"),
            .outputs = {Floats({1, 2, 1}, {2, 5}), Floats({1, 1, 1, 1}, {5})}})
      .Add({.name = "decays",
            .inputs = {ones, ones, two, Floats({1, 1, 1, 1}, {4}),
                       Floats({1, 2, 1}, {std::log(0.5f), std::log(0.25f)})},
            .attributes = Heads(1, 1, "gated"),
            .outputs = {Floats({1, 2, 1}, {4, 4}), Floats({1, 1, 1, 1}, {4})}})
      .Add({.name = "writes_the_difference",
            .inputs = {ones, ones, two, Tensor(), Tensor(), Floats({1, 2, 1}, {1, 0.5f})},
            .attributes = Heads(1, 1, "delta"),
            .outputs = {Floats({1, 2, 1}, {2, 2.5f}), Floats({1, 1, 1, 1}, {2.5f})}})
      .Add({.name = "queries_share_a_state",
            .inputs = {Floats({1, 1, 2}, {1, 10}), Floats({1, 1, 1}, {1}), Floats({1, 1, 1}, {7})},
            .attributes = Heads(2, 1, "linear"),
            .outputs = {Floats({1, 1, 2}, {7, 70}), Floats({1, 1, 1, 1}, {7})}})
      .Attributes(Heads(4, 2, "linear"))
      .ShapeSets({{{2, 5, 12}, {2, 5, 6}, {2, 5, 8}}})
      .Rejects({.inputs = {ones, ones, two}, .attributes = Heads(1, 1, "gated")},
               "\"decay\" is missing")
      .Rejects({.inputs = {ones, ones, two}, .attributes = Heads(1, 1, "softmax")},
               "\"softmax\" is not known");
}

OpCases CausalConvWithStateCases() {
  const Tensor x = Floats({1, 1, 3}, {1, 2, 3});
  const Tensor w = Floats({1, 1, 2}, {10, 1});
  return OpCases("CausalConvWithState")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add({.name = "starts_with_zeros",
            .inputs = {x, w},
            .outputs = {Floats({1, 1, 3}, {1, 12, 23}), Floats({1, 1, 1}, {3})}})
      .Add({.name = "goes_on",
            .inputs = {x, w, Floats({1}, {100}), Floats({1, 1, 1}, {5})},
            .outputs = {Floats({1, 1, 3}, {151, 112, 123}), Floats({1, 1, 1}, {3})}})
      .Add({.name = "silu",
            .inputs = {Floats({1, 1, 1}, {1}), Floats({1, 1, 1}, {1})},
            .attributes = {{"activation", std::string("silu")}},
            .outputs = {Floats({1, 1, 1}, {0.73105858f}), Floats({1, 1, 0}, {})}})
      .Add({.name = "state_longer_than_the_input",
            .inputs = {Floats({1, 1, 1}, {9}), Floats({1, 1, 4}, {1, 1, 1, 1}), Tensor(),
                       Floats({1, 1, 3}, {1, 2, 3})},
            .outputs = {Floats({1, 1, 1}, {15}), Floats({1, 1, 3}, {2, 3, 9})}})
      .ShapeSets({{{2, 3, 7}, {3, 1, 4}, {3}}})
      .Rejects({.inputs = {x, w}, .attributes = {{"activation", std::string("relu")}}},
               "expected none, silu or swish")
      .Rejects({.inputs = {x, Floats({2, 1, 1}, {1, 1})}}, "expected shape [1, 1, 1]");
}

}  // namespace pagefuse::onnx_ops
