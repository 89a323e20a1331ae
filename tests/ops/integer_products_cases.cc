// SPDX-License-Identifier: Apache-2.0
// Cases of MatMulIntegerToFloat, DynamicQuantizeMatMul and QAttention.
#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

Tensor Uint8s(std::vector<int64_t> dims, const std::vector<float>& values) {
  return As(DataType::kUint8, Floats(std::move(dims), values));
}
Tensor Int8s(std::vector<int64_t> dims, const std::vector<float>& values) {
  return As(DataType::kInt8, Floats(std::move(dims), values));
}

}  // namespace

OpCases MatMulIntegerToFloatCases() {
  const Tensor a = Uint8s({1, 2}, {3, 5}), b = Int8s({2, 2}, {1, -2, 3, 4});
  const Tensor half = Floats({}, {0.5f}), by_column = Floats({2}, {2, 4});
  return OpCases("com.microsoft.MatMulIntegerToFloat")
      .Add("scaled", {a, b, half, half}, {Floats({1, 2}, {4.5f, 3.5f})})
      // (1 3) times ((0 -4) (2 2)), by columns.
      .Add("zero_points_and_bias",
           {a, b, half, by_column, Uint8s({}, {2}), Int8s({2}, {1, 2}), Floats({2}, {100, 200})},
           {Floats({1, 2}, {106, 204})})
      .Add("zero_point_of_columns", {a, b, half, by_column, Tensor(), Int8s({2}, {1, 2})},
           {Floats({1, 2}, {10, -4})})
      .Add("bias_alone",
           {a, b, half, half, Tensor(), Tensor(), As(DataType::kFloat, Floats({2}, {1, 2}))},
           {Floats({1, 2}, {5.5f, 5.5f})})
      .Add("halves", {a, b, As(DataType::kFloat16, half), As(DataType::kFloat16, half)},
           {As(DataType::kFloat16, Floats({1, 2}, {4.5f, 3.5f}))})
      .Add("batch",
           {Uint8s({2, 1, 2}, {3, 5, 1, 0}), Int8s({2, 2, 1}, {1, 3, 7, 9}), Floats({1}, {1}),
            Floats({2, 1, 1}, {1, 10})},
           {Floats({2, 1, 1}, {18, 70})})
      .Rejects({a, Int8s({3, 1}, {1, 2, 3}), half, half}, "expected 2 rows to multiply [1, 2] by")
      .Rejects({a, b, by_column, half}, "input 2 \"a_scale\": expected one number")
      .Rejects({a, b, half, Floats({3}, {1, 2, 3})}, "input 3 \"b_scale\": expected shape [2]");
}

OpCases DynamicQuantizeMatMulCases() {
  // 0 to 255: codes are what they stand for.
  const Tensor a = Floats({2, 2}, {0, 255, 3, 5}), b = Int8s({2, 2}, {1, -2, 3, 4});
  const Tensor one = Floats({}, {1});
  return OpCases("com.microsoft.DynamicQuantizeMatMul")
      .Add("scaled", {a, b, one}, {Floats({2, 2}, {765, 1020, 18, 14})})
      .Add("zero_points_and_bias",
           {a, b, Floats({2}, {2, 4}), Int8s({2}, {1, 2}), Floats({2}, {100, 200})},
           {Floats({2, 2}, {1120, 2240, 120, 192})})
      .Add("bias_alone", {a, b, one, Tensor(), Floats({2}, {1, 2})},
           {Floats({2, 2}, {766, 1022, 19, 16})})
      .Rejects({a, b, Floats({3}, {1, 2, 3})}, "input 2 \"b_scale\": expected shape [2]")
      .Rejects({a, b, one, Tensor(), Floats({3}, {1, 2, 3})}, "expected shape [2]");
}

OpCases QAttentionCases() {
  // One head of one channel; queries are 0, so that all keys count alike.
  const Tensor x = Uint8s({1, 2, 1}, {12, 16}), w = Int8s({1, 3}, {0, 1, 2});
  const Tensor bias = Floats({3}, {0, 0, 10}), half = Floats({1}, {0.5f});
  const Tensor none, ten = Uint8s({1}, {10});
  const OpCase causal = {.name = "causal",  // values 4 * (1, 3) + 10
                         .inputs = {x, w, bias, half, Floats({3}, {1, 1, 2}), none, ten},
                         .attributes = {{"num_heads", 1}, {"unidirectional", 1}},
                         .outputs = {Floats({1, 2, 1}, {14, 18})}};
  OpCase wide = causal;
  wide.name = "width";
  wide.inputs[1] = Int8s({2, 3}, {0, 1, 2, 3, 4, 5});
  return OpCases("com.microsoft.QAttention")
      .Add(causal)
      .Add({.name = "hidden",
            .inputs = {x, w, bias, half, Floats({}, {2}), Int32s({1, 2}, std::vector<int>{1, 0}),
                       ten},
            .attributes = {{"num_heads", 1}},
            .outputs = {Floats({1, 2, 1}, {14, 14})}})
      .Add({.name = "past",
            .inputs = {x, w, bias, half, Floats({1}, {2}), none, ten, Int8s({1}, {0}),
                       Floats({2, 1, 1, 1, 1}, {5, 30})},
            .attributes = {{"num_heads", 1}, {"unidirectional", 1}},
            .outputs = {Floats({1, 2, 1}, {22, 22}),
                        Floats({2, 1, 1, 3, 1}, {5, 2, 6, 30, 14, 22})}})
      .Rejects(wide, "input 1 \"weight\": expected shape [1, 3]");
}

}  // namespace pagefuse::microsoft_ops
