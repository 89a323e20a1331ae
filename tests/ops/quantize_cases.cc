// SPDX-License-Identifier: Apache-2.0
// Cases of quantisation and of integer products.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor Bytes(DataType type, const std::vector<int64_t>& values) {
  return As(type, Ints({static_cast<int64_t>(values.size())}, values));
}

}  // namespace

OpCases QuantizeLinearCases() {
  const Tensor x = Floats({2, 3}, {-1, 0.5f, 1.5f, 300, -300, 2.5f});
  const auto code = [](DataType type) { return static_cast<int64_t>(type); };
  return OpCases("QuantizeLinear")
      .Add("columns", {Random(DataType::kFloat, {5, 70}, Normal{0, 9}, 1),
                       Random(DataType::kFloat, {70}, Uniform{0.05, 0.2}, 2),
                       Random(DataType::kInt8, {70}, Uniform{-9, 9}, 3)})
      .Add("not_numbers", {Floats({19}, std::vector<float>(19, std::nanf(""))), Floats({}, {1}),
                           As(DataType::kUint8, Ints({}, {3}))})
      .Add("uint8_by_default", {x, Floats({}, {1})},
           {As(DataType::kUint8, Ints({2, 3}, {0, 0, 2, 255, 0, 2}))})
      .Add("int8_zero_point", {x, Floats({}, {1}), As(DataType::kInt8, Ints({}, {1}))},
           {As(DataType::kInt8, Ints({2, 3}, {0, 1, 3, 127, -128, 3}))})
      .Add("axis", {x, Floats({2}, {0.5f, 100})},
           {As(DataType::kInt16, Ints({2, 3}, {-2, 1, 3, 3, -3, 0}))},
           {{"axis", 0}, {"output_dtype", code(DataType::kInt16)}})
      .Add("blocks", {x, Floats({2, 2}, {0.5f, 1, 100, 1})},
           {As(DataType::kInt8, Ints({2, 3}, {-2, 1, 2, 3, -3, 2}))},
           {{"block_size", 2}, {"output_dtype", code(DataType::kInt8)}})
      .Add("int4", {Floats({3}, {-9, 3, 2.5f}), Floats({}, {1})},
           {Codes(DataType::kInt4, {3}, {0x38, 0x02})}, {{"output_dtype", code(DataType::kInt4)}})
      .Add("e4m3_saturates", {Floats({2}, {500, 1}), Floats({}, {1})},
           {Codes(DataType::kFloat8E4M3FN, {2}, {0x7E, 0x38})},
           {{"output_dtype", code(DataType::kFloat8E4M3FN)}})
      .Add("e5m2_overflows", {Floats({2}, {kInf, 1}), Floats({}, {1})},
           {Codes(DataType::kFloat8E5M2, {2}, {0x7C, 0x3C})},
           {{"output_dtype", code(DataType::kFloat8E5M2)}, {"saturate", 0}})
      .Rejects({x, Floats({2}, {1, 1})}, "expected one scale");
}

OpCases DequantizeLinearCases() {
  return OpCases("DequantizeLinear")
      .Add("uint8",
           {Bytes(DataType::kUint8, {0, 128, 255}), Floats({}, {2}),
            As(DataType::kUint8, Ints({}, {128}))},
           {Floats({3}, {-256, 0, 254})})
      .Add("int4", {Codes(DataType::kInt4, {3}, {0x78, 0x01}), Floats({}, {0.5f})},
           {Floats({3}, {-4, 3.5f, 0.5f})})
      .Add("blocks",
           {As(DataType::kInt8, Ints({2, 3}, {1, 2, 3, 4, 5, 6})),
            Floats({2, 2}, {1, 10, 100, 1000})},
           {Floats({2, 3}, {1, 2, 30, 400, 500, 6000})}, {{"block_size", 2}})
      .Add("half_from_float_scale", {Bytes(DataType::kInt8, {-3}), Floats({}, {0.5f})},
           {As(DataType::kFloat16, Floats({1}, {-1.5f}))},
           {{"output_dtype", static_cast<int64_t>(DataType::kFloat16)}})
      .Rejects({Bytes(DataType::kInt8, {1, 2}), Floats({3}, {1, 1, 1})}, {{"axis", 0}},
               "expected one scale");
}

OpCases DynamicQuantizeLinearCases() {
  return OpCases("DynamicQuantizeLinear")
      .Add("range", {Floats({3}, {-1, 0, 4.1f})},
           {Bytes(DataType::kUint8, {0, 50, 255}), Floats({}, {0.02f}),
            As(DataType::kUint8, Ints({}, {50}))})
      .Add("zeros", {Floats({2}, {0, 0})},
           {Bytes(DataType::kUint8, {0, 0}), Floats({}, {1}), As(DataType::kUint8, Ints({}, {0}))});
}

enum class Zeros { kNone, kOne, kByLine };

// [m, k] by [k, n] of random bytes of all values.
OpCase IntegerProductOf(DataType a, DataType b, const std::vector<int64_t>& sizes, Zeros a_zeros,
                        Zeros b_zeros) {
  const Uniform all{-300, 300};  // clamped to the type
  const int64_t m = sizes[0], k = sizes[1], n = sizes[2];
  OpCase product{.name = "random",
                 .inputs = {Random(a, {m, k}, all, 1), Random(b, {k, n}, all, 2)}};
  const auto add = [&](DataType type, Zeros zeros, int64_t lines, uint64_t seed) {
    if (zeros == Zeros::kNone) return product.inputs.push_back(Tensor());
    const std::vector<int64_t> by_line = {lines};
    product.inputs.push_back(
        Random(type, zeros == Zeros::kOne ? std::vector<int64_t>{} : by_line, all, seed));
  };
  add(a, a_zeros, m, 3);
  add(b, b_zeros, n, 4);
  return product;
}

OpCases MatMulIntegerCases() {
  using enum DataType;
  using enum Zeros;
  const Tensor a = As(DataType::kUint8, Ints({2, 2}, {1, 2, 3, 4}));
  const Tensor b = As(DataType::kInt8, Ints({2, 2}, {5, -6, 7, 8}));
  const auto expected = [](std::vector<int64_t> values) { return Int32s({2, 2}, values); };
  return OpCases("MatMulInteger")
      .Add("plain", {a, b}, {expected({19, 10, 43, 14})})
      .Add("zero_points",
           {a, b, As(DataType::kUint8, Ints({}, {1})), Bytes(DataType::kInt8, {5, 0})},
           {expected({2, 8, 6, 12})})
      .Add(IntegerProductOf(kUint8, kInt8, {1, 37, 70}, kNone, kNone))
      .Add(IntegerProductOf(kUint8, kInt8, {5, 64, 300}, kByLine, kByLine))
      .Add(IntegerProductOf(kInt8, kUint8, {17, 33, 35}, kByLine, kByLine))
      .Add(IntegerProductOf(kUint8, kUint8, {40, 600, 65}, kByLine, kByLine))
      .Add(IntegerProductOf(kInt8, kInt8, {33, 290, 16}, kByLine, kByLine))
      .Add(IntegerProductOf(kUint8, kInt8, {40, 130, 65}, kOne, kOne))
      .Add(IntegerProductOf(kInt8, kInt8, {4, 130, 17}, kOne, kByLine))
      .Add(IntegerProductOf(kUint8, kUint8, {19, 70, 33}, kByLine, kOne))
      .Add(IntegerProductOf(kInt8, kUint8, {6, 70, 33}, kNone, kOne))
      .Add(IntegerProductOf(kInt8, kUint8, {3, 70, 33}, kOne, kOne))
      .Add("batches", {Random(DataType::kUint8, {2, 1, 18, 40}, Uniform{0, 255}, 5),
                       Random(DataType::kInt8, {3, 40, 20}, Uniform{-128, 127}, 6)})
      .Add("nothing_to_sum",
           {As(DataType::kUint8, Ints({2, 0}, {})), As(DataType::kInt8, Ints({0, 2}, {}))},
           {expected({0, 0, 0, 0})})
      .Rejects({a, As(DataType::kInt8, Ints({3, 1}, {1, 2, 3}))}, "do not multiply");
}

}  // namespace pagefuse::onnx_ops
