// SPDX-License-Identifier: Apache-2.0
// Cases of convolutions and pools.
#include <string>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

using List = std::vector<int64_t>;

Tensor Codes8(DataType type, std::vector<int64_t> dims, const std::vector<int>& values) {
  return Codes(type, std::move(dims), std::vector<uint8_t>(values.begin(), values.end()));
}

}  // namespace

OpCases ConvCases() {
  return OpCases("Conv")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "sums of products cancel")
      .Add("padded_line",
           {Floats({1, 1, 3}, {1, 2, 3}), Floats({1, 1, 2}, {10, 1}), Floats({1}, {5})},
           {Floats({1, 1, 3}, {6, 17, 28})}, {{"pads", List{1, 0}}})
      .Add("same_lower", {Floats({1, 1, 3}, {1, 2, 3}), Floats({1, 1, 2}, {10, 1})},
           {Floats({1, 1, 3}, {1, 12, 23})}, {{"auto_pad", "SAME_LOWER"}})
      .ShapeSets({{{2, 3, 9}, {4, 3, 3}},
                  {{1, 3, 7, 8}, {5, 3, 3, 2}, {5}},
                  {{1, 2, 4, 5, 6}, {3, 2, 2, 1, 3}}})
      .Attributes({{"group", 2},
                   {"strides", List{2, 1}},
                   {"dilations", List{1, 2}},
                   {"pads", List{1, 2, 0, 1}}})
      .ShapeSets({{{2, 4, 6, 7}, {6, 2, 2, 3}, {6}}})
      .Rejects({Floats({1, 1, 2}, {1, 2}), Floats({1, 1, 3}, {1, 2, 3})},
               "larger than the padded input")
      .Rejects({Floats({1, 1, 2}, {1, 2}), Floats({1, 2, 1}, {1, 2})},
               "expected 1 groups of channels");
}

// Random bytes with a window of every attribute; `w` is [M, C / group, ...].
OpCase ByteWindows(std::vector<int64_t> x, std::vector<int64_t> w, int64_t group,
                   DataType type = DataType::kUint8) {
  const size_t axes = x.size() - 2;
  List strides(axes, 1), dilations(axes, 1), pads(2 * axes, 1);
  strides.front() = 2;
  dilations.back() = 2;
  pads.front() = 2;
  const int64_t outputs = w[0];
  const Uniform all = type == DataType::kUint8 ? Uniform{0, 255} : Uniform{-128, 127};
  return {.name = "random",
          .inputs = {Random(type, std::move(x), all, 1),
                     Random(DataType::kInt8, std::move(w), Uniform{-128, 127}, 2),
                     Codes8(type, {}, {7}), Random(DataType::kInt8, {outputs}, Uniform{-9, 9}, 3)},
          .attributes = {
              {"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", group}}};
}

// The same, quantised.
OpCase QuantisedWindows(std::vector<int64_t> x, std::vector<int64_t> w, int64_t group) {
  const int64_t outputs = w[0];
  const OpCase plain = ByteWindows(std::move(x), std::move(w), group);
  return {.name = "random",
          .inputs = {plain.inputs[0], Floats({}, {0.02f}), plain.inputs[2], plain.inputs[1],
                     Random(DataType::kFloat, {outputs}, Uniform{0.01, 0.05}, 4), plain.inputs[3],
                     Floats({}, {0.6f}), Codes8(DataType::kUint8, {}, {100}),
                     Random(DataType::kInt32, {outputs}, Uniform{-999, 999}, 5)},
          .attributes = plain.attributes};
}

OpCases ConvIntegerCases() {
  return OpCases("ConvInteger")
      .Add(ByteWindows({2, 6, 9, 11}, {40, 3, 3, 3}, 2))
      .Add(ByteWindows({1, 3, 20}, {5, 3, 4}, 1))
      .Add(ByteWindows({2, 4, 9, 7}, {8, 2, 3, 3}, 2, DataType::kInt8))
      .Add(ByteWindows({1, 2, 5, 4, 6}, {2, 1, 2, 3, 2}, 2))
      .Add("zero_points",
           {Codes8(DataType::kUint8, {1, 1, 3}, {2, 3, 4}),
            Codes8(DataType::kUint8, {2, 1, 2}, {1, 1, 3, 2}), Codes8(DataType::kUint8, {}, {1}),
            Codes8(DataType::kUint8, {2}, {0, 2})},
           {Int32s({1, 2, 3}, {3, 5, 3, 1, 2, 3})}, {{"pads", List{0, 1}}});
}

OpCases QLinearConvCases() {
  return OpCases("QLinearConv")
      .Add(QuantisedWindows({2, 6, 9, 11}, {40, 3, 3, 3}, 2))
      .Add(QuantisedWindows({1, 4, 7, 8}, {3, 4, 2, 2}, 1))
      .Add({.name = "one_tap",
            .inputs = {Codes8(DataType::kUint8, {1, 1, 2}, {5, 255}), Floats({}, {0.5f}),
                       Codes8(DataType::kUint8, {}, {1}), Codes8(DataType::kInt8, {1, 1, 1}, {2}),
                       Floats({1}, {1}), Codes8(DataType::kInt8, {1}, {0}), Floats({}, {2}),
                       Codes8(DataType::kUint8, {}, {10}), Int32s({1}, {4})},
            // (4 * 2 + 4) * 0.5 / 2 + 10 and (254 * 2 + 4) * 0.25 + 10.
            .outputs = {Codes8(DataType::kUint8, {1, 1, 2}, {13, 138})}});
}

OpCases AveragePoolCases() {
  return OpCases("AveragePool")
      .Add("pads_do_not_count", {Floats({1, 1, 3}, {2, 4, 6})}, {Floats({1, 1, 3}, {2, 3, 5})},
           {{"kernel_shape", List{2}}, {"pads", List{1, 0}}})
      .Add("pads_count", {Floats({1, 1, 3}, {2, 4, 6})}, {Floats({1, 1, 3}, {1, 3, 5})},
           {{"kernel_shape", List{2}}, {"pads", List{1, 0}}, {"count_include_pad", 1}})
      .Add("last_window_over_the_end", {Floats({1, 1, 4}, {1, 2, 3, 5})},
           {Floats({1, 1, 2}, {2, 4})},
           {{"kernel_shape", List{3}},
            {"strides", List{2}},
            {"ceil_mode", 1},
            {"count_include_pad", 1}})
      .Attributes({{"kernel_shape", List{2, 3}}, {"strides", List{2, 1}}})
      .Shapes({{2, 3, 5, 7}})
      .Attributes({{"kernel_shape", List{3, 4}},
                   {"strides", List{2, 4}},
                   {"pads", List{1, 2, 1, 3}},
                   {"dilations", List{1, 2}}})
      .Shapes({{1, 2, 8, 45}})
      .Attributes({{"kernel_shape", List{2, 2, 3}}, {"pads", List(6, 1)}})
      .Shapes({{1, 2, 3, 4, 20}})
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-6}, "float sums against sums in double")
      .Rejects({Floats({1, 1, 2}, {1, 2})}, {{"kernel_shape", List{0}}}, "kernel_shape")
      .Rejects({Floats({1, 1, 2}, {1, 2})}, {{"kernel_shape", List{1, 1}}}, "expected 1 values");
}

OpCases LpPoolCases() {
  return OpCases("LpPool")
      .Add("euclid", {Floats({1, 1, 3}, {3, -4, 0})}, {Floats({1, 1, 2}, {5, 4})},
           {{"kernel_shape", List{2}}})
      .Attributes({{"kernel_shape", List{2, 2}}, {"p", 3}})
      .Shapes({{1, 2, 3, 4}})
      .Attributes({{"kernel_shape", List{3, 3}}, {"p", 1}, {"pads", List(4, 1)}})
      .Shapes({{1, 2, 6, 35}})
      .Attributes({{"kernel_shape", List{3}}, {"p", 2}, {"strides", List{3}}})
      .Shapes({{2, 2, 50}});
}

OpCases MaxPoolCases() {
  return OpCases("MaxPool")
      .Add("with_places", {Floats({1, 2, 3}, {1, 3, 3, -1, -2, -1})},
           {Floats({1, 2, 2}, {3, 3, -1, -1}), Ints({1, 2, 2}, {1, 1, 3, 5})},
           {{"kernel_shape", List{2}}})
      .Add("places_by_column", {Floats({1, 1, 2, 2}, {1, 5, 2, 3})},
           {Floats({1, 1, 1, 1}, {5}), Ints({1, 1, 1, 1}, {2})},
           {{"kernel_shape", List{2, 2}}, {"storage_order", 1}})
      .Add("bytes", {Codes8(DataType::kInt8, {1, 1, 2}, {0xFF, 0xFE})},
           {Codes8(DataType::kInt8, {1, 1, 1}, {0xFF})}, {{"kernel_shape", List{2}}})
      .Attributes(
          {{"kernel_shape", List{2, 2}}, {"dilations", List{1, 2}}, {"pads", List{1, 1, 0, 0}}})
      .Shapes({{2, 3, 4, 6}})
      .Attributes({{"kernel_shape", List{3, 3}}, {"strides", List{2, 2}}, {"pads", List(4, 1)}})
      .Shapes({{1, 2, 9, 70}})
      .Add({.name = "places_of_many",
            .inputs = {Random(DataType::kFloat, {2, 2, 9, 30}, Normal{}, 1)},
            .attributes = {{"kernel_shape", List{3, 2}},
                           {"strides", List{2, 2}},
                           {"dilations", List{1, 3}},
                           {"pads", List{1, 2, 1, 2}}},
            .num_outputs = 2});
}

OpCases GlobalAveragePoolCases() {
  return OpCases("GlobalAveragePool")
      .Add("planes", {Floats({1, 2, 2}, {1, 3, 5, 9})}, {Floats({1, 2, 1}, {2, 7})})
      .Shapes({{2, 3, 4, 5}});
}
OpCases GlobalMaxPoolCases() {
  return OpCases("GlobalMaxPool")
      .Add("planes", {Floats({1, 2, 2}, {1, 3, -5, -9})}, {Floats({1, 2, 1}, {3, -5})})
      .Shapes({{2, 3, 4, 5}});
}
OpCases GlobalLpPoolCases() {
  return OpCases("GlobalLpPool")
      .Add("planes", {Floats({1, 1, 2}, {3, -4})}, {Floats({1, 1, 1}, {5})})
      .Shapes({{2, 3, 4, 5}});
}

}  // namespace pagefuse::onnx_ops
