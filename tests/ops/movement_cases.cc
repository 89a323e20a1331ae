// SPDX-License-Identifier: Apache-2.0
// Cases of the ops that reshape, reorder, join, cut and repeat.
#include <limits>

#include "op_test.h"

#include "pagefuse/base/packed_types.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// 0, 1, 2, ... as floats.
Tensor Counting(const std::vector<int64_t>& dims) {
  std::vector<float> values(*ElementCount(dims));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Floats(dims, values);
}

}  // namespace

OpCases ShapeCases() {
  const Tensor x = Counting({2, 3, 1});
  return OpCases("Shape")
      .Add("all", {x}, {Ints({3}, {2, 3, 1})})
      .Add("part", {x}, {Ints({1}, {3})}, {{"start", 1}, {"end", -1}})
      .Add("clamped", {x}, {Ints({3}, {2, 3, 1})}, {{"start", -7}, {"end", 9}})
      .Add("empty_range", {x}, {Ints({0}, {})}, {{"start", 2}, {"end", 1}})
      .Add("scalar", {Floats({}, {1})}, {Ints({0}, {})})
      .Shapes({{0, 2}, {3}});
}

OpCases SizeCases() {
  return OpCases("Size")
      .Add("matrix", {Counting({2, 3})}, {Ints({}, {6})})
      .Add("scalar", {Floats({}, {5})}, {Ints({}, {1})})
      .Shapes({{0, 2}, {3}});
}

OpCases ReshapeCases() {
  const Tensor x = Counting({2, 3, 4});
  return OpCases("Reshape")
      .Add("rest", {x, Ints({2}, {-1, 4})}, {Counting({6, 4})})
      .Add("copies_dim", {x, Ints({3}, {0, -1, 2})}, {Counting({2, 6, 2})})
      .Add("to_scalar", {Floats({1}, {7}), Ints({0}, {})}, {Floats({}, {7})})
      .Add("zero_means_zero", {Floats({0, 3}, {}), Ints({3}, {5, 0, 2})}, {Floats({5, 0, 2}, {})},
           {{"allowzero", 1}})
      .Add("packed", {Codes(DataType::kInt4, {3, 1}, {0x21, 0x03}), Ints({1}, {3})},
           {Codes(DataType::kInt4, {3}, {0x21, 0x03})})
      .Rejects({x, Ints({1}, {5})}, "cannot reshape [2, 3, 4] to [5]")
      .Rejects({x, Ints({2}, {-1, -1})}, "two elements are -1")
      .Rejects({x, Ints({1}, {-2})}, "element 0 is -2")
      .Rejects({Floats({0}, {}), Ints({2}, {0, -1})}, "-1 has no answer");
}

OpCases FlattenCases() {
  const Tensor x = Counting({2, 3, 4});
  return OpCases("Flatten")
      .Add("default", {x}, {Counting({2, 12})})
      .Add("front", {x}, {Counting({1, 24})}, {{"axis", 0}})
      .Add("back", {x}, {Counting({6, 4})}, {{"axis", -1}})
      .Rejects({x}, {{"axis", 4}}, "4 is out of range for rank 3");
}

OpCases SqueezeCases() {
  const Tensor x = Counting({1, 3, 1, 2});
  return OpCases("Squeeze")
      .Add("all", {x}, {Counting({3, 2})})
      .Add("named", {x, Ints({1}, {-2})}, {Counting({1, 3, 2})})
      .Rejects({x, Ints({1}, {1})}, "axis 1 of shape [1, 3, 1, 2] cannot be squeezed")
      .Rejects({x, Ints({2}, {0, -4})}, "axis -4 is named twice");
}

OpCases UnsqueezeCases() {
  const Tensor x = Counting({3, 2});
  return OpCases("Unsqueeze")
      .Add("both_ends", {x, Ints({2}, {0, -1})}, {Counting({1, 3, 2, 1})})
      .Add("scalar", {Floats({}, {0}), Ints({1}, {0})}, {Counting({1})})
      .Rejects({x, Ints({1}, {3})}, "axis 3 is out of range for rank 3");
}

OpCases IdentityCases() {
  return OpCases("Identity").Exact({{1, 2, 3}}, {{1, 2, 3}}).Shapes({{0}, {}, {3, 5}});
}

// Counting({rows, columns}) with its axes exchanged.
Tensor CountingColumns(int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) values.push_back(static_cast<float>(i * columns + j));
  }
  return Floats({columns, rows}, values);
}

OpCases TransposeCases() {
  return OpCases("Transpose")
      .Add("no_whole_tiles", {Counting({38, 71})}, {CountingColumns(38, 71)})
      .Add("reverses", {Counting({2, 3})}, {Floats({3, 2}, {0, 3, 1, 4, 2, 5})})
      .Add("last_two", {Counting({2, 1, 2, 2})}, {Floats({2, 1, 2, 2}, {0, 2, 1, 3, 4, 6, 5, 7})},
           {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})
      .Add("heads", {Counting({1, 2, 2, 2})}, {Floats({1, 2, 2, 2}, {0, 1, 4, 5, 2, 3, 6, 7})},
           {{"perm", std::vector<int64_t>{0, 2, 1, 3}}})
      .Add("packed", {Codes(DataType::kInt4, {2, 3}, {0x10, 0x32, 0x54})},
           {Codes(DataType::kInt4, {3, 2}, {0x30, 0x41, 0x52})})
      .Add("four_a_byte", {Codes(kUint2, {2, 2}, {0xE4})}, {Codes(kUint2, {2, 2}, {0xD8})})
      .Shapes({{}, {5}, {0, 3}, {65, 33}, {3, 4, 70}})
      .Attributes({{"perm", std::vector<int64_t>{2, 0, 1}}})
      .Shapes({{40, 2, 37}, {1, 3, 1}})
      .Rejects({Counting({2, 3})}, {{"perm", std::vector<int64_t>{0, 0}}},
               "[0, 0] is no order of the axes of [2, 3]");
}

OpCases ConcatCases() {
  return OpCases("Concat")
      .Add("rows", {Counting({1, 2}), Floats({2, 2}, {5, 6, 7, 8})},
           {Floats({3, 2}, {0, 1, 5, 6, 7, 8})}, {{"axis", 0}})
      .Add("columns", {Counting({2, 2}), Floats({2, 1}, {8, 9})},
           {Floats({2, 3}, {0, 1, 8, 2, 3, 9})}, {{"axis", -1}})
      .Add("empty_part", {Floats({2, 0}, {}), Counting({2, 1})}, {Counting({2, 1})}, {{"axis", 1}})
      .Attributes({{"axis", 1}})
      .ShapeSets({{{2, 3, 5}, {2, 1, 5}, {2, 4, 5}}, {{1, 7}}})
      .Rejects({Counting({2, 2}), Counting({3, 1})}, {{"axis", 1}},
               "expected shape like [2, 2] off axis 1, got [3, 1]")
      .Rejects({Counting({2, 2}), Counting({4})}, {{"axis", 1}}, "expected rank 2, got shape [4]");
}

OpCases SplitCases() {
  const Tensor x = Counting({2, 3});
  return OpCases("Split")
      .Add("sizes", {x, Ints({2}, {2, 1})}, {Floats({2, 2}, {0, 1, 3, 4}), Floats({2, 1}, {2, 5})},
           {{"axis", 1}})
      .Add("uneven", {Counting({5})}, {Floats({3}, {0, 1, 2}), Floats({2}, {3, 4})},
           {{"num_outputs", 2}})
      .Add("empty_part", {x, Ints({2}, {0, 2})}, {Floats({0, 3}, {}), Counting({2, 3})})
      .Rejects({.inputs = {x, Ints({2}, {2, 2})}, .attributes = {{"axis", 1}}, .num_outputs = 2},
               "sizes add up to 4, expected 3")
      .Rejects({.inputs = {x, Ints({2}, {4, -1})}, .attributes = {{"axis", 1}}, .num_outputs = 2},
               "a size is negative")
      .Rejects({.inputs = {x, Ints({2}, {kMax, 1})}, .attributes = {{"axis", 1}}, .num_outputs = 2},
               "the sum of the sizes is no 64-bit number");
}

OpCases SliceCases() {
  const Tensor x = Counting({3, 4});
  return OpCases("Slice")
      .Add("box", {x, Ints({2}, {1, 0}), Ints({2}, {3, 2})}, {Floats({2, 2}, {4, 5, 8, 9})})
      .Add("to_the_end", {x, Ints({1}, {-2}), Ints({1}, {kMax}), Ints({1}, {-1})},
           {Floats({3, 2}, {2, 3, 6, 7, 10, 11})})
      .Add("backwards",
           {Counting({5}), Ints({1}, {-1}), Ints({1}, {kMin}), Ints({1}, {0}), Ints({1}, {-2})},
           {Floats({3}, {4, 2, 0})})
      .Add("largest_steps",
           {Counting({5}), Ints({1}, {1}), Ints({1}, {kMax}), Ints({1}, {0}), Ints({1}, {kMax})},
           {Floats({1}, {1})})
      .Add("smallest_steps",
           {Counting({5}), Ints({1}, {3}), Ints({1}, {kMin}), Ints({1}, {0}), Ints({1}, {kMin})},
           {Floats({1}, {3})})
      .Add("nothing", {x, Ints({1}, {2}), Ints({1}, {1})}, {Floats({0, 4}, {})})
      .Rejects({x, Ints({1}, {0}), Ints({1}, {1}), Ints({1}, {0}), Ints({1}, {0})}, "a step is 0")
      .Rejects({x, Ints({2}, {0, 0}), Ints({1}, {1})}, "expected as many elements as starts")
      .Rejects({x, Ints({1}, {0}), Ints({1}, {1}), Ints({2, 1}, {0, 1})},
               "expected rank 1, got shape [2, 1]");
}

OpCases ExpandCases() {
  return OpCases("Expand")
      .Add("both_ways", {Floats({2, 1}, {1, 2}), Ints({3}, {2, 1, 3})},
           {Floats({2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2})})
      .Add("keeps_larger", {Counting({1, 3}), Ints({2}, {1, 1})}, {Counting({1, 3})})
      .Add("scalar", {Bools({}, {true}), Ints({1}, {2})}, {Bools({2}, {true, true})})
      .Rejects({Counting({3}), Ints({1}, {2})}, "shapes [3] and [2] do not broadcast");
}

OpCases TileCases() {
  return OpCases("Tile")
      .Add("both_axes", {Counting({2, 2}), Ints({2}, {1, 2})},
           {Floats({2, 4}, {0, 1, 0, 1, 2, 3, 2, 3})})
      .Add("rows", {Counting({2}), Ints({1}, {3})}, {Floats({6}, {0, 1, 0, 1, 0, 1})})
      .Add("none", {Counting({2}), Ints({1}, {0})}, {Floats({0}, {})})
      .Rejects({Counting({2}), Ints({1}, {-1})}, "is negative")
      .Rejects({Counting({2}), Ints({2}, {1, 1})}, "expected 1 elements, got 2");
}

OpCases PadCases() {
  const Tensor x = Counting({3});
  const Tensor pads = Ints({2}, {2, 1});
  return OpCases("Pad")
      .Add("constant", {x, pads, Floats({}, {9})}, {Floats({6}, {9, 9, 0, 1, 2, 9})})
      .Add("removes", {x, Ints({2}, {-1, 1})}, {Floats({3}, {1, 2, 0})})
      .Add("axes", {Counting({2, 2}), Ints({2}, {0, 1}), Tensor(), Ints({1}, {-1})},
           {Floats({2, 3}, {0, 1, 0, 2, 3, 0})})
      .Add("edge", {x, pads}, {Floats({6}, {0, 0, 0, 1, 2, 2})}, {{"mode", "edge"}})
      .Add("reflect", {x, pads}, {Floats({6}, {2, 1, 0, 1, 2, 1})}, {{"mode", "reflect"}})
      .Add("wrap", {x, pads}, {Floats({6}, {1, 2, 0, 1, 2, 0})}, {{"mode", "wrap"}})
      .Add("packed",
           {Codes(DataType::kUint4, {2}, {0x21}), Ints({2}, {1, 0}),
            Codes(DataType::kUint4, {}, {7})},
           {Codes(DataType::kUint4, {3}, {0x17, 0x02})})
      .Rejects({x, Ints({2}, {3, 0})}, {{"mode", "reflect"}},
               "cannot pad an axis of 3 elements by 3 in mode reflect")
      .Rejects({x, Ints({2}, {-2, -2})}, "removes more than axis 0 of [3] has");
}

}  // namespace pagefuse::onnx_ops
