// SPDX-License-Identifier: Apache-2.0
// Cases of norms over channels, QLinearMatMul, Dropout and SwiGLU.
#include <cmath>
#include <string>

#include "op_test.h"

namespace pagefuse::onnx_ops {

OpCases BatchNormalizationCases() {
  const Tensor x = Floats({2, 1, 2}, {1, 2, 3, 6});
  const Tensor one = Floats({1}, {1});
  return OpCases("BatchNormalization")
      .Add("inference", {x, Floats({1}, {2}), one, Floats({1}, {2}), Floats({1}, {4})},
           {Floats({2, 1, 2}, {0, 1, 2, 5})}, {{"epsilon", 0.0f}})
      .Add({.name = "training_moves_the_statistics",
            .inputs = {x, one, Floats({1}, {0}), Floats({1}, {1}), Floats({1}, {1.5f})},
            .attributes = {{"epsilon", 0.5f}, {"momentum", 0.5f}, {"training_mode", 1}},
            // Mean 3, variance 3.5.
            .outputs = {Floats({2, 1, 2}, {-1, -0.5f, 0, 1.5f}), Floats({1}, {2}),
                        Floats({1}, {2.5f})}})
      .Fill(Uniform{0.5, 2})
      .ShapeSets({{{2, 3, 4, 5}, {3}, {3}, {3}, {3}}})
      .Rejects({x, Floats({2}, {1, 1}), one, one, one}, "expected shape [1]");
}

OpCases GroupNormalizationCases() {
  return OpCases("GroupNormalization")
      .Add("two_groups",
           {Floats({1, 2, 2}, {0, 2, 4, 8}), Floats({2}, {1, 2}), Floats({2}, {0, 1})},
           {Floats({1, 2, 2}, {-1, 1, -1, 3})}, {{"num_groups", 2}, {"epsilon", 0.0f}})
      .Add({.name = "scale_by_group_before_21",
            .inputs = {Floats({1, 2, 1}, {0, 2}), Floats({1}, {3}), Floats({1}, {1})},
            .attributes = {{"num_groups", 1}, {"epsilon", 0.0f}},
            .outputs = {Floats({1, 2, 1}, {-2, 4})},
            .opset = 18})
      .Attributes({{"num_groups", 2}})
      .ShapeSets({{{2, 4, 3, 5}, {4}, {4}}})
      .Rejects({Floats({1, 3, 1}, {0, 2, 1}), Floats({3}, {3, 3, 3}), Floats({3}, {1, 1, 1})},
               {{"num_groups", 2}}, "do not divide");
}

OpCases InstanceNormalizationCases() {
  return OpCases("InstanceNormalization")
      .Add("planes", {Floats({1, 2, 2}, {0, 2, 4, 8}), Floats({2}, {1, 2}), Floats({2}, {0, 1})},
           {Floats({1, 2, 2}, {-1, 1, -1, 3})}, {{"epsilon", 0.0f}})
      .ShapeSets({{{2, 4, 3, 5}, {4}, {4}}})
      .Rejects({Floats({1, 2}, {0, 2}), Floats({2}, {1, 2}), Floats({2}, {0, 1})},
               "expected rank 3");
}

OpCases LRNCases() {
  return OpCases("LRN")
      .Add("three_channels", {Floats({1, 3, 1}, {1, 2, 3})},
           {Floats({1, 3, 1}, {1.0f / 6, 2.0f / 15, 3.0f / 14})},
           {{"size", 3}, {"alpha", 3.0f}, {"beta", 1.0f}})
      .Attributes({{"size", 2}})
      .Shapes({{2, 5, 3}});
}

OpCases LpNormalizationCases() {
  return OpCases("LpNormalization")
      .Exact({{3, -4}}, {{0.6f, -0.8f}})
      .Exact({{0, 0}}, {{0, 0}})
      .Attributes({{"p", 1}, {"axis", 0}})
      .Exact({{3, -5}}, {{0.375f, -0.625f}})
      .Shapes({{3, 7}, {4, 1, 2}})
      .Rejects({Floats({1}, {1})}, {{"p", 3}}, "expected 1 or 2");
}

OpCases MeanVarianceNormalizationCases() {
  return OpCases("MeanVarianceNormalization")
      .Add("rows", {Floats({2, 2}, {0, 2, 4, 8})}, {Floats({2, 2}, {-1, 1, -1, 1})},
           {{"axes", std::vector<int64_t>{1}}})
      .Shapes({{2, 3, 4, 5}});
}

// [m, k] by [k, n] of random bytes, scales and zero points of lines where `by_line`.
OpCase RandomQLinear(DataType a, DataType b, const std::vector<int64_t>& sizes, bool by_line) {
  const int64_t m = sizes[0], k = sizes[1], n = sizes[2];
  const Uniform all{-300, 300};  // clamped to the type
  const auto lines = [&](int64_t count) {
    return by_line ? std::vector<int64_t>{count} : std::vector<int64_t>{};
  };
  const auto scales = [&](int64_t count, uint64_t seed) {
    return Random(DataType::kFloat, lines(count), Uniform{0.01, 0.05}, seed);
  };
  return {.name = "random",
          .inputs = {Random(a, {m, k}, all, 1), scales(m, 2), Random(a, lines(m), Uniform{0, 9}, 3),
                     Random(b, {k, n}, all, 4), scales(n, 5), Random(b, lines(n), Uniform{0, 9}, 6),
                     Floats({}, {0.7f}), Random(a, {}, Uniform{1, 100}, 7)}};
}

OpCases QLinearMatMulCases() {
  const auto bytes = [](std::vector<int64_t> dims, std::vector<uint8_t> codes) {
    return Codes(DataType::kUint8, std::move(dims), codes);
  };
  return OpCases("QLinearMatMul")
      .Add({.name = "scales_by_line",
            .inputs = {bytes({2, 2}, {1, 2, 3, 4}), Floats({2}, {1, 2}), bytes({2}, {0, 1}),
                       bytes({2, 1}, {5, 6}), Floats({1}, {0.5f}), bytes({1}, {4}),
                       Floats({}, {0.25f}), bytes({}, {100})},
            // (1 + 4) * 0.5 / 0.25 and (2 + 6) * 2 * 0.5 / 0.25.
            .outputs = {bytes({2, 1}, {110, 132})}})
      .Add("saturates",
           {bytes({1, 1}, {255}), Floats({}, {1}), bytes({}, {0}), bytes({1, 1}, {2}),
            Floats({}, {1}), bytes({}, {0}), Floats({}, {1}), bytes({}, {0})},
           {bytes({1, 1}, {255})})
      .Add(RandomQLinear(DataType::kUint8, DataType::kInt8, {20, 70, 45}, false))
      .Add(RandomQLinear(DataType::kInt8, DataType::kInt8, {3, 33, 20}, true))
      .Add(RandomQLinear(DataType::kUint8, DataType::kUint8, {1, 64, 130}, true))
      .Rejects({bytes({1, 2}, {1, 2}), Floats({}, {1}), bytes({}, {0}), bytes({1, 1}, {2}),
                Floats({}, {1}), bytes({}, {0}), Floats({}, {1}), bytes({}, {0})},
               "do not multiply");
}

OpCases DropoutCases() {
  return OpCases("Dropout")
      .Add("inference", {Floats({2}, {1, 2}), Floats({}, {0.9f})},
           {Floats({2}, {1, 2}), Bools({2}, {true, true})})
      .Add("training_that_drops_nothing", {Floats({2}, {1, 2}), Floats({}, {0}), Bools({}, {true})},
           {Floats({2}, {1, 2})})
      .Rejects({Floats({2}, {1, 2}), Floats({}, {0.5f}), Bools({}, {true})},
               "random numbers are not drawn");
}

OpCases SwiGLUCases() {
  return OpCases("SwiGLU")
      .Exact({{0, 1}, {3, 2}}, {{0, 1.4621172f}})
      .Attributes({{"alpha", 1.702f}})
      .Shapes({{3, 5}});
}

}  // namespace pagefuse::onnx_ops
