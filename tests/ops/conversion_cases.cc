// SPDX-License-Identifier: Apache-2.0
// Cases of the ops that make tensors and change element types.
#include <limits>

#include "op_test.h"

#include "pagefuse/base/packed_types.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

AttributeValue Code(DataType type) { return static_cast<int64_t>(type); }

OpCase CastCase(const char* name, Tensor from, Tensor to) {
  return {
      .name = name, .inputs = {from}, .attributes = {{"to", Code(to.dtype())}}, .outputs = {to}};
}

}  // namespace

OpCases CastCases() {
  OpCases cases("Cast");
  cases
      .Add(CastCase("truncates", Floats({4}, {1.9f, -1.9f, 0.5f, 300}), Ints({4}, {1, -1, 0, 300})))
      .Add(CastCase("to_bool", Floats({3}, {0, 0.25f, kNan}), Bools({3}, {false, true, true})))
      .Add(CastCase("wraps", Ints({2}, {200, 256}), As(DataType::kInt8, Ints({2}, {-56, 0}))))
      .Add(CastCase("exact_int64", Ints({1}, {(int64_t{1} << 53) + 1}),
                    Tensor::Of<uint64_t>({1}, {(uint64_t{1} << 53) + 1})))
      .Add(CastCase("bfloat16_ties_to_even", Floats({2}, {1.00390625f, 1.01171875f}),
                    As(DataType::kBfloat16, Floats({2}, {1.0f, 1.015625f}))))
      .Add(CastCase("float16_overflows", Floats({1}, {70000}),
                    As(DataType::kFloat16, Floats({1}, {kInf}))))
      .Add(CastCase("e4m3_saturates", Floats({3}, {500, -500, 1}),
                    Codes(DataType::kFloat8E4M3FN, {3}, {0x7E, 0xFE, 0x38})))
      .Add("e4m3_overflows", {Floats({2}, {500, 448})},
           {Codes(DataType::kFloat8E4M3FN, {2}, {0x7F, 0x7E})},
           {{"to", Code(DataType::kFloat8E4M3FN)}, {"saturate", 0}})
      .Add("e8m0_down", {Floats({2}, {3, 4})}, {Codes(DataType::kFloat8E8M0, {2}, {128, 129})},
           {{"to", Code(DataType::kFloat8E8M0)}, {"round_mode", "down"}})
      .Add(CastCase("e5m2_to_float", Codes(DataType::kFloat8E5M2, {2}, {0x3C, 0x7C}),
                    Floats({2}, {1, kInf})))
      .Add(CastCase("int4", Floats({3}, {-8, 7, 1}), Codes(DataType::kInt4, {3}, {0x78, 0x01})))
      .Add(CastCase("int4_wraps", Floats({2}, {-9, 17.5f}), Codes(DataType::kInt4, {2}, {0x17})))
      .Add(CastCase("from_int4", Codes(DataType::kInt4, {3}, {0x78, 0x0F}), Ints({3}, {-8, 7, -1})))
      .Add(CastCase("from_e2m1", Codes(DataType::kFloat4E2M1, {3}, {0x71, 0x09}),
                    Floats({3}, {0.5f, 6, -0.5f})))
      .Add(CastCase("nan_to_e2m1", Floats({2}, {kNan, 9}),
                    Codes(DataType::kFloat4E2M1, {2}, {0x78})))
      .Add(CastCase("from_int2", Codes(kInt2, {5}, {0xE4, 0x02}), Ints({5}, {0, 1, -2, -1, -2})))
      .Add(CastCase("uint2_wraps", Floats({5}, {0, 1, 2, 3, -3}), Codes(kUint2, {5}, {0xE4, 0x01})))
      .Add(CastCase("same_type", Ints({2}, {1, 2}), Ints({2}, {1, 2})))
      .Rejects({Floats({1}, {0})}, {{"to", 99}}, "99 is no type")
      .Rejects({Floats({1}, {0})}, "attribute \"to\": is missing");
  for (DataType to : {DataType::kFloat, DataType::kFloat16, DataType::kInt32, DataType::kUint8}) {
    cases.Attributes({{"to", Code(to)}}).Fill(Uniform{0, 100}).Shapes({{3, 701}, {0}});
  }
  return cases;
}

OpCases CastLikeCases() {
  return OpCases("CastLike")
      .Add("to_int32", {Floats({2}, {1.5f, -2}), Int32s({1}, {0})}, {Int32s({2}, {1, -2})});
}

OpCases BitCastCases() {
  return OpCases("BitCast")
      .Add("float_bits", {Floats({2}, {1, -2})},
           {Tensor::Of<uint32_t>({2}, {0x3F800000, 0xC0000000})}, {{"to", Code(DataType::kUint32)}})
      .Add("codes", {Codes(DataType::kUint8, {1}, {0x38})},
           {Codes(DataType::kFloat8E4M3FN, {1}, {0x38})}, {{"to", Code(DataType::kFloat8E4M3FN)}})
      .Rejects({Floats({1}, {1})}, {{"to", Code(DataType::kInt64)}},
               "int64 is not as wide as float");
}

OpCases ConstantCases() {
  return OpCases("Constant")
      .Add("value", {}, {Floats({1, 2}, {1, 2})}, {{"value", Floats({1, 2}, {1, 2})}})
      .Add("int", {}, {Ints({}, {7})}, {{"value_int", 7}})
      .Add("ints", {}, {Ints({2}, {7, 8})}, {{"value_ints", std::vector<int64_t>{7, 8}}})
      .Add("float", {}, {Floats({}, {0.5f})}, {{"value_float", 0.5f}})
      .Add("floats", {}, {Floats({1}, {0.5f})}, {{"value_floats", std::vector<float>{0.5f}}})
      .Rejects(OpCase{.num_outputs = 1}, "expected one value attribute");
}

OpCases ConstantOfShapeCases() {
  return OpCases("ConstantOfShape")
      .Add("zeros", {Ints({2}, {2, 1})}, {Floats({2, 1}, {0, 0})})
      .Add("ints", {Ints({1}, {3})}, {Ints({3}, {-4, -4, -4})}, {{"value", Ints({1}, {-4})}})
      .Add("scalar", {Ints({0}, {})}, {Bools({}, {true})}, {{"value", Bools({1}, {true})}})
      .Add("packed", {Ints({1}, {3})}, {Codes(DataType::kInt4, {3}, {0x55, 0x05})},
           {{"value", Codes(DataType::kInt4, {1}, {0x05})}})
      .Rejects({Ints({1}, {-1})}, "has a negative dim");
}

OpCases RangeCases() {
  return OpCases("Range")
      .Add("up", {Ints({}, {2}), Ints({}, {9}), Ints({}, {3})}, {Ints({3}, {2, 5, 8})})
      .Add("down", {Ints({}, {3}), Ints({}, {0}), Ints({}, {-2})}, {Ints({2}, {3, 1})})
      .Add("floats", {Floats({}, {0}), Floats({}, {1}), Floats({}, {0.25f})},
           {Floats({4}, {0, 0.25f, 0.5f, 0.75f})})
      .Add("empty", {Ints({}, {1}), Ints({}, {1}), Ints({}, {1})}, {Ints({0}, {})})
      .Rejects({Ints({}, {0}), Ints({}, {1}), Ints({}, {0})}, "delta is 0")
      .Rejects({Ints({2}, {0, 1}), Ints({}, {1}), Ints({}, {1})}, "expected one element");
}

}  // namespace pagefuse::onnx_ops
