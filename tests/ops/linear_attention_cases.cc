// SPDX-License-Identifier: Apache-2.0
// Cases of LinearAttention and CausalConvWithState.
#include <cmath>
#include <string>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

AttributeList Heads(int64_t q, int64_t kv, const char* rule) {
  return {{"q_num_heads", q}, {"kv_num_heads", kv}, {"update_rule", std::string(rule)}};
}

}  // namespace

OpCases LinearAttentionCases() {
  const Tensor two = Floats({1, 2, 1}, {2, 3});
  const Tensor ones = Floats({1, 2, 1}, {1, 1});
  return OpCases("LinearAttention")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add("sums_of_values", {ones, ones, two},
           {Floats({1, 2, 1}, {2, 5}), Floats({1, 1, 1, 1}, {5})}, Heads(1, 1, "linear"))
      .Add("decays",
           {ones, ones, two, Floats({1, 1, 1, 1}, {4}),
            Floats({1, 2, 1}, {std::log(0.5f), std::log(0.25f)})},
           {Floats({1, 2, 1}, {4, 4}), Floats({1, 1, 1, 1}, {4})}, Heads(1, 1, "gated"))
      .Add("writes_the_difference",
           {ones, ones, two, Tensor(), Tensor(), Floats({1, 2, 1}, {1, 0.5f})},
           {Floats({1, 2, 1}, {2, 2.5f}), Floats({1, 1, 1, 1}, {2.5f})}, Heads(1, 1, "delta"))
      .Add("queries_share_a_state",
           {Floats({1, 1, 2}, {1, 10}), Floats({1, 1, 1}, {1}), Floats({1, 1, 1}, {7})},
           {Floats({1, 1, 2}, {7, 70}), Floats({1, 1, 1, 1}, {7})}, Heads(2, 1, "linear"))
      .Attributes(Heads(4, 2, "linear"))
      .ShapeSets({{{2, 5, 12}, {2, 5, 6}, {2, 5, 8}}})
      .Rejects({ones, ones, two}, Heads(1, 1, "gated"), "\"decay\" is missing")
      .Rejects({ones, ones, two}, Heads(1, 1, "softmax"), "\"softmax\" is not known");
}

OpCases CausalConvWithStateCases() {
  const Tensor x = Floats({1, 1, 3}, {1, 2, 3});
  const Tensor w = Floats({1, 1, 2}, {10, 1});
  return OpCases("CausalConvWithState")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add("starts_with_zeros", {x, w}, {Floats({1, 1, 3}, {1, 12, 23}), Floats({1, 1, 1}, {3})})
      .Add("goes_on", {x, w, Floats({1}, {100}), Floats({1, 1, 1}, {5})},
           {Floats({1, 1, 3}, {151, 112, 123}), Floats({1, 1, 1}, {3})})
      .Add("silu", {Floats({1, 1, 1}, {1}), Floats({1, 1, 1}, {1})},
           {Floats({1, 1, 1}, {0.73105858f}), Floats({1, 1, 0}, {})}, {{"activation", "silu"}})
      .Add("state_longer_than_the_input",
           {Floats({1, 1, 1}, {9}), Floats({1, 1, 4}, {1, 1, 1, 1}), Tensor(),
            Floats({1, 1, 3}, {1, 2, 3})},
           {Floats({1, 1, 1}, {15}), Floats({1, 1, 3}, {2, 3, 9})})
      .ShapeSets({{{2, 3, 7}, {3, 1, 4}, {3}}})
      .Rejects({x, w}, {{"activation", "relu"}}, "expected none, silu or swish")
      .Rejects({x, Floats({2, 1, 1}, {1, 1})}, "expected shape [1, 1, 1]");
}

}  // namespace pagefuse::onnx_ops
