// SPDX-License-Identifier: Apache-2.0
// Cases of the matrix products.
#include <string>

#include "op_test.h"
#include "weight_cases.h"

namespace pagefuse {
namespace {

// Sums of up to 130 products in another order than the reference's: each of the sum's roundings is
// half a unit of a value of size 10.
constexpr Tolerance kSums{.rtol = 1e-5, .atol = 3e-5};
// The same sums, rounded.
constexpr Tolerance kHalfSums{.rtol = 1e-3, .atol = kSums.atol};
constexpr const char* kSumsReason = "kernels add in another order than the reference";

}  // namespace

namespace onnx_ops {

OpCases MatMulCases() {
  return OpCases("MatMul")
      .Add("by_hand", {Floats({2, 2}, {1, 2, 3, 4}), Floats({2, 3}, {1, 0, 2, 0, 1, 3})},
           {Floats({2, 3}, {1, 2, 8, 3, 4, 18})})
      .Add({.name = "constant_weight",
            .inputs = {Floats({1, 2}, {1, 2}), Floats({2, 2}, {1, 2, 3, 4})},
            .outputs = {Floats({1, 2}, {7, 10})},
            .constants = {1}})
      .Add("vectors", {Floats({3}, {1, 2, 3}), Floats({3}, {4, 5, 6})}, {Floats({}, {32})})
      .ShapeSets({{{3, 4}, {4, 5}},
                  {{1, 130}, {130, 33}},
                  {{17, 31}, {31, 64}},
                  {{2, 3, 7}, {7, 5}},
                  {{2, 1, 3, 7}, {4, 7, 2}},
                  {{2, 3, 64}, {2, 64, 4096}},
                  {{7}, {2, 7, 3}},
                  {{2, 3, 7}, {7}},
                  {{0, 3}, {3, 2}},
                  {{2, 0}, {0, 3}}})
      .Within(DataType::kFloat, kSums, kSumsReason)
      .Within(DataType::kFloat16, kHalfSums, kSumsReason)
      .Rejects({Floats({2, 2}, {1, 2, 3, 4}), Floats({3, 1}, {1, 2, 3})},
               "expected 2 rows to multiply [2, 2] by, got [3, 1]")
      .Rejects({Floats({}, {1}), Floats({1, 1}, {1})}, "expected a matrix or vector, got shape []");
}

OpCases GemmCases() {
  return OpCases("Gemm")
      .Add({.name = "all_attributes",
            .inputs = {Floats({2, 1}, {1, 2}), Floats({3, 2}, {1, 2, 3, 4, 5, 6}),
                       Floats({3}, {1, 2, 3})},
            .attributes = {{"transA", 1}, {"transB", 1}, {"alpha", 2.0f}, {"beta", 0.5f}},
            .outputs = {Floats({1, 3}, {10.5f, 23, 35.5f})}})
      .Add("column_bias",
           {Floats({2, 1}, {1, 2}), Floats({1, 2}, {1, 2}), Floats({2, 1}, {10, 20})},
           {Floats({2, 2}, {11, 12, 22, 24})})
      .ShapeSets({{{3, 4}, {4, 5}}, {{17, 65}, {65, 33}}, {{2, 0}, {0, 3}}, {{0, 2}, {2, 3}}})
      .Within(DataType::kFloat, kSums, kSumsReason)
      .Within(DataType::kFloat16, kHalfSums, kSumsReason)
      .Rejects({Floats({1, 2}, {1, 2}), Floats({2, 1}, {1, 2}), Floats({2}, {1, 2})},
               "expected a shape that broadcasts to [1, 1], got [2]")
      .Rejects({Floats({2}, {1, 2}), Floats({2, 1}, {1, 2})}, "expected a matrix, got shape [2]");
}

}  // namespace onnx_ops

namespace microsoft_ops {

OpCases FusedMatMulCases() {
  return OpCases("com.microsoft.FusedMatMul")
      .Add("transposed_and_scaled", {Floats({2, 1}, {1, 2}), Floats({3, 2}, {1, 2, 3, 4, 5, 6})},
           {Floats({1, 3}, {2.5f, 5.5f, 8.5f})}, {{"transA", 1}, {"transB", 1}, {"alpha", 0.5f}})
      .ShapeSets({{{3, 4}, {4, 5}}, {{2, 3, 7}, {7, 5}}})
      .Attributes({{"transB", 1}})
      .ShapeSets({{{17, 65}, {33, 65}},
                  {{2, 3, 7}, {2, 5, 7}},
                  {{1, 130}, {9, 130}},
                  {{2, 3, 64}, {2, 4096, 64}},
                  {{3, 1, 64}, {3, 24, 64}},
                  {{2, 1, 5, 64}, {3, 24, 64}},
                  {{2, 8, 520}, {2, 9, 520}}})
      .Attributes({{"transA", 1}, {"alpha", 0.5f}})
      .ShapeSets({{{2, 7, 3}, {2, 7, 5}}})
      .Add("rows_before_the_batch",
           {Floats({1, 2, 2}, {1, 2, 3, 4}), Floats({2, 2, 1}, {1, 1, 10, 1})},
           {Floats({2, 1, 1}, {3, 34})}, {{"transBatchA", 1}})
      .Attributes({{"transBatchA", 1}, {"alpha", 0.5f}})
      .ShapeSets({{{3, 2, 7}, {2, 7, 5}}, {{3, 2, 4, 7}, {2, 4, 7, 5}}})
      .Attributes({{"transBatchA", 1}, {"transA", 1}, {"transBatchB", 1}, {"transB", 1}})
      .ShapeSets({{{7, 2, 3}, {5, 2, 7}}})
      .Within(DataType::kFloat, kSums, kSumsReason)
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-5},
              "the decomposition rounds before it scales")
      .Within(DataType::kBfloat16, {.rtol = 1.6e-2, .atol = 1e-5},
              "the decomposition rounds before it scales")
      .Rejects({Floats({2}, {1, 2}), Floats({2, 1}, {1, 2})}, {{"transA", 1}},
               "expected a matrix to transpose, got a vector")
      .Rejects({Floats({1, 1}, {1}), Floats({1, 1}, {1})}, {{"transBatchB", 1}},
               "attribute \"transBatchB\": expected operands of one rank from 3 on, got [1, 1]")
      .Rejects({Floats({1, 1, 2}, {1, 2}), Floats({1, 2, 1}, {1, 2})}, {{"transBatchB", 1}},
               "with their batch dims in front, [1, 1, 2] and [2, 1, 1] do not multiply");
}

}  // namespace microsoft_ops

namespace pagefuse_ops {

OpCases GatedLinearCases() {
  OpCases cases("pagefuse.GatedLinear");
  cases
      .Add("silu_by_hand",
           {Floats({1, 2}, {1, 2}), Floats({2, 1}, {1, -1}), Floats({2, 1}, {2, 3})},
           {Floats({1, 1}, {-2.1515314f})}, {{"activation", "silu"}})  // -1 / (1 + e) * 8
      .Fill(Normal{0, 0.3});
  for (const char* activation : {"gelu", "gelu_tanh", "silu"}) {
    cases.Attributes({{"activation", std::string(activation)}})
        .ShapeSets({{{2, 3}, {3, 5}, {3, 5}},
                    {{1, 2, 65}, {65, 33}, {65, 33}},
                    {{17, 32}, {32, 16}, {32, 16}},
                    {{0, 3}, {3, 2}, {3, 2}}});
    cases.Attributes({{"activation", std::string(activation)}, {"transB", 1}})
        .ShapeSets({{{2, 3}, {5, 3}, {5, 3}},
                    {{1, 2, 65}, {33, 65}, {33, 65}},
                    {{17, 32}, {16, 32}, {16, 32}},
                    {{0, 3}, {2, 3}, {2, 3}}});
    cases.Attributes({{"activation", std::string(activation)}, {"limit", 0.5f}})
        .ShapeSets({{{2, 3}, {3, 5}, {3, 5}}, {{17, 65}, {65, 33}, {65, 33}}});
  }
  cases.Add({.name = "limit_by_hand",
             .inputs = {Floats({1, 1}, {1}), Floats({1, 2}, {5, -1}), Floats({1, 2}, {-7, 1})},
             .attributes = {{"activation", "silu"}, {"limit", 2.0f}},
             // 2 / (1 + e^-2) * -2, -1 / (1 + e) * 1
             .outputs = {Floats({1, 2}, {-3.5231884f, -0.26894143f})}});
  AddGatedBf16Cases(cases);
  AddGatedCodesCases(cases);
  return cases.Within(DataType::kFloat, kSums, kSumsReason)
      .Within(DataType::kFloat16, {.rtol = 6e-3, .atol = 4e-3},
              "the decomposition rounds both products and the activation")
      .Within(DataType::kBfloat16, {.rtol = 5e-2, .atol = 3e-2},
              "the decomposition rounds both products and the activation")
      .Rejects(
          {Floats({1, 1}, {1}), Floats({1, 1}, {1}), Floats({1, 2}, {1, 2})},
          {{"activation", "silu"}},
          "input 2 \"w_up\": expected [K, N] with K = 1 of \"x\", N = 1 of \"w_gate\", no \"gate_scales\", transB = 0, got [1, 2]")
      .Rejects({Floats({1, 1}, {1}), Floats({1, 1}, {1}), Floats({1, 1}, {1})},
               {{"activation", "relu"}}, "expected gelu, gelu_tanh or silu, got \"relu\"");
}

}  // namespace pagefuse_ops
}  // namespace pagefuse
