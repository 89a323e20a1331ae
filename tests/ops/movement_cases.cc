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
      .Add({.name = "all", .inputs = {x}, .outputs = {Ints({3}, {2, 3, 1})}})
      .Add({.name = "part",
            .inputs = {x},
            .attributes = {{"start", 1}, {"end", -1}},
            .outputs = {Ints({1}, {3})}})
      .Add({.name = "clamped",
            .inputs = {x},
            .attributes = {{"start", -7}, {"end", 9}},
            .outputs = {Ints({3}, {2, 3, 1})}})
      .Add({.name = "empty_range",
            .inputs = {x},
            .attributes = {{"start", 2}, {"end", 1}},
            .outputs = {Ints({0}, {})}})
      .Add({.name = "scalar", .inputs = {Floats({}, {1})}, .outputs = {Ints({0}, {})}})
      .Shapes({{0, 2}, {3}});
}

OpCases SizeCases() {
  return OpCases("Size")
      .Add({.name = "matrix", .inputs = {Counting({2, 3})}, .outputs = {Ints({}, {6})}})
      .Add({.name = "scalar", .inputs = {Floats({}, {5})}, .outputs = {Ints({}, {1})}})
      .Shapes({{0, 2}, {3}});
}

OpCases ReshapeCases() {
  const Tensor x = Counting({2, 3, 4});
  return OpCases("Reshape")
      .Add({.name = "rest", .inputs = {x, Ints({2}, {-1, 4})}, .outputs = {Counting({6, 4})}})
      .Add({.name = "copies_dim",
            .inputs = {x, Ints({3}, {0, -1, 2})},
            .outputs = {Counting({2, 6, 2})}})
      .Add({.name = "to_scalar",
            .inputs = {Floats({1}, {7}), Ints({0}, {})},
            .outputs = {Floats({}, {7})}})
      .Add({.name = "zero_means_zero",
            .inputs = {Floats({0, 3}, {}), Ints({3}, {5, 0, 2})},
            .attributes = {{"allowzero", 1}},
            .outputs = {Floats({5, 0, 2}, {})}})
      .Add({.name = "packed",
            .inputs = {Codes(DataType::kInt4, {3, 1}, {0x21, 0x03}), Ints({1}, {3})},
            .outputs = {Codes(DataType::kInt4, {3}, {0x21, 0x03})}})
      .Rejects({.inputs = {x, Ints({1}, {5})}}, "cannot reshape [2, 3, 4] to [5]")
      .Rejects({.inputs = {x, Ints({2}, {-1, -1})}}, "two elements are -1")
      .Rejects({.inputs = {x, Ints({1}, {-2})}}, "element 0 is -2")
      .Rejects({.inputs = {Floats({0}, {}), Ints({2}, {0, -1})}}, "-1 has no answer");
}

OpCases FlattenCases() {
  const Tensor x = Counting({2, 3, 4});
  return OpCases("Flatten")
      .Add({.name = "default", .inputs = {x}, .outputs = {Counting({2, 12})}})
      .Add({.name = "front",
            .inputs = {x},
            .attributes = {{"axis", 0}},
            .outputs = {Counting({1, 24})}})
      .Add({.name = "back",
            .inputs = {x},
            .attributes = {{"axis", -1}},
            .outputs = {Counting({6, 4})}})
      .Rejects({.inputs = {x}, .attributes = {{"axis", 4}}}, "4 is out of range for rank 3");
}

OpCases SqueezeCases() {
  const Tensor x = Counting({1, 3, 1, 2});
  return OpCases("Squeeze")
      .Add({.name = "all", .inputs = {x}, .outputs = {Counting({3, 2})}})
      .Add({.name = "named", .inputs = {x, Ints({1}, {-2})}, .outputs = {Counting({1, 3, 2})}})
      .Rejects({.inputs = {x, Ints({1}, {1})}}, "axis 1 of shape [1, 3, 1, 2] cannot be squeezed")
      .Rejects({.inputs = {x, Ints({2}, {0, -4})}}, "axis -4 is named twice");
}

OpCases UnsqueezeCases() {
  const Tensor x = Counting({3, 2});
  return OpCases("Unsqueeze")
      .Add({.name = "both_ends",
            .inputs = {x, Ints({2}, {0, -1})},
            .outputs = {Counting({1, 3, 2, 1})}})
      .Add({.name = "scalar",
            .inputs = {Floats({}, {0}), Ints({1}, {0})},
            .outputs = {Counting({1})}})
      .Rejects({.inputs = {x, Ints({1}, {3})}}, "axis 3 is out of range for rank 3");
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
      .Add({.name = "no_whole_tiles",
            .inputs = {Counting({38, 71})},
            .outputs = {CountingColumns(38, 71)}})
      .Add({.name = "reverses",
            .inputs = {Counting({2, 3})},
            .outputs = {Floats({3, 2}, {0, 3, 1, 4, 2, 5})}})
      .Add({.name = "last_two",
            .inputs = {Counting({2, 1, 2, 2})},
            .attributes = {{"perm", std::vector<int64_t>{0, 1, 3, 2}}},
            .outputs = {Floats({2, 1, 2, 2}, {0, 2, 1, 3, 4, 6, 5, 7})}})
      .Add({.name = "heads",
            .inputs = {Counting({1, 2, 2, 2})},
            .attributes = {{"perm", std::vector<int64_t>{0, 2, 1, 3}}},
            .outputs = {Floats({1, 2, 2, 2}, {0, 1, 4, 5, 2, 3, 6, 7})}})
      .Add({.name = "packed",
            .inputs = {Codes(DataType::kInt4, {2, 3}, {0x10, 0x32, 0x54})},
            .outputs = {Codes(DataType::kInt4, {3, 2}, {0x30, 0x41, 0x52})}})
      .Add({.name = "four_a_byte",
            .inputs = {Codes(kUint2, {2, 2}, {0xE4})},
            .outputs = {Codes(kUint2, {2, 2}, {0xD8})}})
      .Shapes({{}, {5}, {0, 3}, {65, 33}, {3, 4, 70}})
      .Attributes({{"perm", std::vector<int64_t>{2, 0, 1}}})
      .Shapes({{40, 2, 37}, {1, 3, 1}})
      .Rejects({.inputs = {Counting({2, 3})}, .attributes = {{"perm", std::vector<int64_t>{0, 0}}}},
               "[0, 0] is no order of the axes of [2, 3]");
}

OpCases ConcatCases() {
  return OpCases("Concat")
      .Add({.name = "rows",
            .inputs = {Counting({1, 2}), Floats({2, 2}, {5, 6, 7, 8})},
            .attributes = {{"axis", 0}},
            .outputs = {Floats({3, 2}, {0, 1, 5, 6, 7, 8})}})
      .Add({.name = "columns",
            .inputs = {Counting({2, 2}), Floats({2, 1}, {8, 9})},
            .attributes = {{"axis", -1}},
            .outputs = {Floats({2, 3}, {0, 1, 8, 2, 3, 9})}})
      .Add({.name = "empty_part",
            .inputs = {Floats({2, 0}, {}), Counting({2, 1})},
            .attributes = {{"axis", 1}},
            .outputs = {Counting({2, 1})}})
      .Attributes({{"axis", 1}})
      .ShapeSets({{{2, 3, 5}, {2, 1, 5}, {2, 4, 5}}, {{1, 7}}})
      .Rejects({.inputs = {Counting({2, 2}), Counting({3, 1})}, .attributes = {{"axis", 1}}},
               "expected shape like [2, 2] off axis 1, got [3, 1]")
      .Rejects({.inputs = {Counting({2, 2}), Counting({4})}, .attributes = {{"axis", 1}}},
               "expected rank 2, got shape [4]");
}

OpCases SplitCases() {
  const Tensor x = Counting({2, 3});
  return OpCases("Split")
      .Add({.name = "sizes",
            .inputs = {x, Ints({2}, {2, 1})},
            .attributes = {{"axis", 1}},
            .outputs = {Floats({2, 2}, {0, 1, 3, 4}), Floats({2, 1}, {2, 5})}})
      .Add({.name = "uneven",
            .inputs = {Counting({5})},
            .attributes = {{"num_outputs", 2}},
            .outputs = {Floats({3}, {0, 1, 2}), Floats({2}, {3, 4})}})
      .Add({.name = "empty_part",
            .inputs = {x, Ints({2}, {0, 2})},
            .outputs = {Floats({0, 3}, {}), Counting({2, 3})}})
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
      .Add({.name = "box",
            .inputs = {x, Ints({2}, {1, 0}), Ints({2}, {3, 2})},
            .outputs = {Floats({2, 2}, {4, 5, 8, 9})}})
      .Add({.name = "to_the_end",
            .inputs = {x, Ints({1}, {-2}), Ints({1}, {kMax}), Ints({1}, {-1})},
            .outputs = {Floats({3, 2}, {2, 3, 6, 7, 10, 11})}})
      .Add({.name = "backwards",
            .inputs = {Counting({5}), Ints({1}, {-1}), Ints({1}, {kMin}), Ints({1}, {0}),
                       Ints({1}, {-2})},
            .outputs = {Floats({3}, {4, 2, 0})}})
      .Add({.name = "largest_steps",
            .inputs = {Counting({5}), Ints({1}, {1}), Ints({1}, {kMax}), Ints({1}, {0}),
                       Ints({1}, {kMax})},
            .outputs = {Floats({1}, {1})}})
      .Add({.name = "smallest_steps",
            .inputs = {Counting({5}), Ints({1}, {3}), Ints({1}, {kMin}), Ints({1}, {0}),
                       Ints({1}, {kMin})},
            .outputs = {Floats({1}, {3})}})
      .Add({.name = "nothing",
            .inputs = {x, Ints({1}, {2}), Ints({1}, {1})},
            .outputs = {Floats({0, 4}, {})}})
      .Rejects({.inputs = {x, Ints({1}, {0}), Ints({1}, {1}), Ints({1}, {0}), Ints({1}, {0})}},
               "a step is 0")
      .Rejects({.inputs = {x, Ints({2}, {0, 0}), Ints({1}, {1})}},
               "expected as many elements as starts")
      .Rejects({.inputs = {x, Ints({1}, {0}), Ints({1}, {1}), Ints({2, 1}, {0, 1})}},
               "expected rank 1, got shape [2, 1]");
}

OpCases ExpandCases() {
  return OpCases("Expand")
      .Add({.name = "both_ways",
            .inputs = {Floats({2, 1}, {1, 2}), Ints({3}, {2, 1, 3})},
            .outputs = {Floats({2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2})}})
      .Add({.name = "keeps_larger",
            .inputs = {Counting({1, 3}), Ints({2}, {1, 1})},
            .outputs = {Counting({1, 3})}})
      .Add({.name = "scalar",
            .inputs = {Bools({}, {true}), Ints({1}, {2})},
            .outputs = {Bools({2}, {true, true})}})
      .Rejects({.inputs = {Counting({3}), Ints({1}, {2})}}, "shapes [3] and [2] do not broadcast");
}

OpCases TileCases() {
  return OpCases("Tile")
      .Add({.name = "both_axes",
            .inputs = {Counting({2, 2}), Ints({2}, {1, 2})},
            .outputs = {Floats({2, 4}, {0, 1, 0, 1, 2, 3, 2, 3})}})
      .Add({.name = "rows",
            .inputs = {Counting({2}), Ints({1}, {3})},
            .outputs = {Floats({6}, {0, 1, 0, 1, 0, 1})}})
      .Add(
          {.name = "none", .inputs = {Counting({2}), Ints({1}, {0})}, .outputs = {Floats({0}, {})}})
      .Rejects({.inputs = {Counting({2}), Ints({1}, {-1})}}, "is negative")
      .Rejects({.inputs = {Counting({2}), Ints({2}, {1, 1})}}, "expected 1 elements, got 2");
}

OpCases PadCases() {
  const Tensor x = Counting({3});
  const Tensor pads = Ints({2}, {2, 1});
  return OpCases("Pad")
      .Add({.name = "constant",
            .inputs = {x, pads, Floats({}, {9})},
            .outputs = {Floats({6}, {9, 9, 0, 1, 2, 9})}})
      .Add({.name = "removes",
            .inputs = {x, Ints({2}, {-1, 1})},
            .outputs = {Floats({3}, {1, 2, 0})}})
      .Add({.name = "axes",
            .inputs = {Counting({2, 2}), Ints({2}, {0, 1}), Tensor(), Ints({1}, {-1})},
            .outputs = {Floats({2, 3}, {0, 1, 0, 2, 3, 0})}})
      .Add({.name = "edge",
            .inputs = {x, pads},
            .attributes = {{"mode", "edge"}},
            .outputs = {Floats({6}, {0, 0, 0, 1, 2, 2})}})
      .Add({.name = "reflect",
            .inputs = {x, pads},
            .attributes = {{"mode", "reflect"}},
            .outputs = {Floats({6}, {2, 1, 0, 1, 2, 1})}})
      .Add({.name = "wrap",
            .inputs = {x, pads},
            .attributes = {{"mode", "wrap"}},
            .outputs = {Floats({6}, {1, 2, 0, 1, 2, 0})}})
      .Add({.name = "packed",
            .inputs = {Codes(DataType::kUint4, {2}, {0x21}), Ints({2}, {1, 0}),
                       Codes(DataType::kUint4, {}, {7})},
            .outputs = {Codes(DataType::kUint4, {3}, {0x17, 0x02})}})
      .Rejects({.inputs = {x, Ints({2}, {3, 0})}, .attributes = {{"mode", "reflect"}}},
               "cannot pad an axis of 3 elements by 3 in mode reflect")
      .Rejects({.inputs = {x, Ints({2}, {-2, -2})}}, "removes more than axis 0 of [3] has");
}

}  // namespace pagefuse::onnx_ops
