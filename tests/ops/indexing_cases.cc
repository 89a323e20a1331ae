// SPDX-License-Identifier: Apache-2.0
// Cases of the ops that pick, place and order elements.
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

OpCases GatherCases() {
  const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  return OpCases("Gather")
      .Add("rows", {x, Ints({2}, {2, -3})}, {Floats({2, 2}, {5, 6, 1, 2})})
      .Add("scalar_drops_axis", {x, Ints({}, {1})}, {Floats({2}, {3, 4})})
      .Add("columns", {x, Int32s({1, 2}, {1, 1})}, {Floats({3, 1, 2}, {2, 2, 4, 4, 6, 6})},
           {{"axis", 1}})
      .Add("none", {x, Ints({0}, {})}, {Floats({0, 2}, {})})
      .Rejects({x, Ints({1}, {3})}, "index 3 is out of range [-3, 3)")
      .Rejects({Floats({}, {1}), Ints({1}, {0})}, "axis 0 is out of range for rank 0");
}

OpCases GatherElementsCases() {
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4});
  return OpCases("GatherElements")
      .Add("columns", {x, Ints({2, 2}, {0, 0, 1, -2})}, {Floats({2, 2}, {1, 1, 4, 3})},
           {{"axis", 1}})
      .Add("fewer_columns", {x, Ints({3, 1}, {0, 1, 0})}, {Floats({3, 1}, {1, 3, 1})})
      .Rejects({x, Ints({1, 3}, {0, 0, 0})}, "reaches over [2, 2] at axis 1")
      .Rejects({x, Ints({1, 1}, {2})}, "index 2 is out of range [-2, 2)");
}

OpCases GatherNDCases() {
  const Tensor x = Floats({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  return OpCases("GatherND")
      .Add("elements", {x, Ints({2, 3}, {0, 1, 1, 1, -2, 0})}, {Floats({2}, {3, 4})})
      .Add("slices", {x, Ints({1, 2, 1}, {1, 0})}, {Floats({1, 2, 2, 2}, {4, 5, 6, 7, 0, 1, 2, 3})})
      .Add("batches", {x, Ints({2, 1}, {1, 0})}, {Floats({2, 2}, {2, 3, 4, 5})},
           {{"batch_dims", 1}})
      .Rejects({x, Ints({1, 1}, {2})}, "index 2 is out of range [-2, 2)")
      .Rejects({x, Ints({1, 4}, {0, 0, 0, 0})}, "does not index [2, 2, 2]");
}

OpCases ScatterElementsCases() {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor indices = Ints({1, 2}, {1, -1});
  const Tensor updates = Floats({1, 2}, {10, 20});
  return OpCases("ScatterElements")
      .Add("columns", {x, indices, updates}, {Floats({2, 3}, {1, 10, 20, 4, 5, 6})}, {{"axis", 1}})
      .Add("rows", {x, Ints({1, 2}, {1, 0}), updates}, {Floats({2, 3}, {1, 20, 3, 10, 5, 6})})
      .Add("add_twice", {x, Ints({1, 2}, {0, 0}), updates}, {Floats({2, 3}, {31, 2, 3, 4, 5, 6})},
           {{"axis", 1}, {"reduction", "add"}})
      .Add("mul", {x, indices, updates}, {Floats({2, 3}, {1, 20, 60, 4, 5, 6})},
           {{"axis", 1}, {"reduction", "mul"}})
      .Add("max_of_halves",
           {As(DataType::kFloat16, x), indices, As(DataType::kFloat16, Floats({1, 2}, {1, 20}))},
           {As(DataType::kFloat16, Floats({2, 3}, {1, 2, 20, 4, 5, 6}))},
           {{"axis", 1}, {"reduction", "max"}})
      .Add("min", {x, indices, Floats({1, 2}, {1, 20})}, {Floats({2, 3}, {1, 1, 3, 4, 5, 6})},
           {{"axis", 1}, {"reduction", "min"}})
      .Rejects({x, Ints({1, 1}, {3}), Floats({1, 1}, {0})}, {{"axis", 1}},
               "index 3 is out of range [-3, 3)")
      .Rejects({x, indices, Floats({2, 1}, {0, 0})}, "expected shape [1, 2], got [2, 1]")
      .Rejects({x, indices, updates}, {{"reduction", "mean"}}, "\"mean\" is not known");
}

OpCases ScatterNDCases() {
  const Tensor x = Floats({4}, {1, 2, 3, 4});
  return OpCases("ScatterND")
      .Add("elements", {x, Ints({2, 1}, {3, -3}), Floats({2}, {9, 8})}, {Floats({4}, {1, 8, 3, 9})})
      .Add("rows", {Floats({2, 2}, {1, 2, 3, 4}), Ints({1, 1}, {1}), Floats({1, 2}, {7, 8})},
           {Floats({2, 2}, {1, 2, 7, 8})})
      .Add("last_wins", {x, Ints({2, 1}, {0, 0}), Floats({2}, {9, 8})}, {Floats({4}, {8, 2, 3, 4})})
      .Add("adds", {x, Ints({2, 1}, {0, 0}), Floats({2}, {9, 8})}, {Floats({4}, {18, 2, 3, 4})},
           {{"reduction", "add"}})
      .Rejects({x, Ints({1, 1}, {4}), Floats({1}, {0})}, "index 4 is out of range [-4, 4)")
      .Rejects({x, Ints({1, 1}, {0}), Floats({2}, {0, 0})}, "expected shape [1], got [2]");
}

OpCases TensorScatterCases() {
  const Tensor cache = Floats({2, 1, 3, 1}, {1, 2, 3, 4, 5, 6});
  const Tensor update = Floats({2, 1, 2, 1}, {10, 11, 12, 13});
  return OpCases("TensorScatter")
      .Add("from_the_start", {cache, update}, {Floats({2, 1, 3, 1}, {10, 11, 3, 12, 13, 6})})
      .Add("linear", {cache, update, Ints({2}, {1, 0})},
           {Floats({2, 1, 3, 1}, {1, 10, 11, 12, 13, 6})})
      .Add("circular", {cache, update, Ints({2}, {2, 0})},
           {Floats({2, 1, 3, 1}, {11, 2, 10, 12, 13, 6})}, {{"mode", "circular"}})
      .Rejects({cache, update, Ints({2}, {2, 0})}, "index 2 is out of range [0, 2)")
      .Rejects({cache, update, Ints({2}, {-1, 0})}, "index -1 is out of range [0, 2)")
      .Rejects({cache, update}, {{"axis", 0}}, "is the batch axis");
}

OpCases WhereCases() {
  return OpCases("Where")
      .Add("broadcasts", {Bools({2, 1}, {true, false}), Floats({3}, {1, 2, 3}), Floats({}, {9})},
           {Floats({2, 3}, {1, 2, 3, 9, 9, 9})})
      .Add("ints", {Bools({2}, {false, true}), Ints({2}, {1, 2}), Ints({2}, {3, 4})},
           {Ints({2}, {3, 2})})
      .ShapeSets({{{4, 5}, {4, 5}, {4, 5}}, {{1, 5}, {4, 1}, {1}}})
      .Rejects({Bools({2}, {true, true}), Floats({3}, {1, 2, 3}), Floats({}, {0})},
               "shapes [2] and [3] do not broadcast");
}

OpCases NonZeroCases() {
  return OpCases("NonZero")
      .Add("matrix", {Floats({2, 2}, {0, 1, 2, 0})}, {Ints({2, 2}, {0, 1, 1, 0})})
      .Add("scalar", {Floats({}, {3})}, {Ints({0, 1}, {})})
      .Add("none", {Bools({2}, {false, false})}, {Ints({1, 0}, {})})
      .Add("halves", {As(DataType::kFloat16, Floats({3}, {0, 1, -0.0f}))}, {Ints({1, 1}, {1})});
}

OpCases TriluCases() {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  return OpCases("Trilu")
      .Add("upper", {x}, {Floats({2, 3}, {1, 2, 3, 0, 5, 6})})
      .Add("lower", {x}, {Floats({2, 3}, {1, 0, 0, 4, 5, 0})}, {{"upper", 0}})
      .Add("above", {x, Ints({}, {1})}, {Floats({2, 3}, {0, 2, 3, 0, 0, 6})})
      .Add("lower_below", {x, Ints({}, {-1})}, {Floats({2, 3}, {0, 0, 0, 4, 0, 0})}, {{"upper", 0}})
      .Add("far", {x, Ints({}, {std::numeric_limits<int64_t>::min()})}, {x})
      .Shapes({{2, 4, 5}, {3, 1}})
      .Rejects({Floats({3}, {1, 2, 3})}, "expected rank 2 or more, got shape [3]");
}

OpCases OneHotCases() {
  const Tensor values = Floats({2}, {0, 5});
  return OpCases("OneHot")
      .Add("last_axis", {Ints({2}, {1, -1}), Ints({}, {3}), values},
           {Floats({2, 3}, {0, 5, 0, 0, 0, 5})})
      .Add("first_axis", {Ints({2}, {0, 7}), Ints({1}, {2}), values},
           {Floats({2, 2}, {5, 0, 0, 0})}, {{"axis", 0}})
      .Rejects({Ints({1}, {0}), Ints({}, {-1}), values}, "depth is negative")
      .Rejects({Ints({1}, {0}), Ints({}, {1}), Floats({1}, {0})}, "expected shape [2], got [1]");
}

OpCases CumSumCases() {
  const Tensor x = Floats({3}, {1, 2, 3});
  const Tensor axis = Ints({}, {0});
  return OpCases("CumSum")
      .Add("plain", {x, axis}, {Floats({3}, {1, 3, 6})})
      .Add("exclusive", {x, axis}, {Floats({3}, {0, 1, 3})}, {{"exclusive", 1}})
      .Add("reverse", {x, axis}, {Floats({3}, {6, 5, 3})}, {{"reverse", 1}})
      .Add("inner_axis", {Ints({2, 2}, {1, 2, 3, 4}), Ints({}, {-1})}, {Ints({2, 2}, {1, 3, 3, 7})})
      .Rejects({x, Ints({}, {1})}, "axis 1 is out of range for rank 1");
}

// The first k of lines of random numbers with equals, infinities and NaN among them.
OpCase RandomTopK(std::vector<int64_t> dims, int64_t axis, int64_t k, bool largest) {
  const Tensor x = As(DataType::kFloat, Random(DataType::kInt32, dims, Normal{0, 90}, 1));
  std::vector<float> values(x.values<float>().begin(), x.values<float>().end());
  for (size_t i = 3; i < values.size(); i += 101) {
    values[i] = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                           : std::numeric_limits<float>::infinity();
  }
  return {.name = "random",
          .inputs = {Floats(dims, values), Ints({1}, {k})},
          .attributes = {{"axis", axis}, {"largest", largest ? 1 : 0}},
          .num_outputs = 2};
}

OpCases TopKCases() {
  const Tensor x = Floats({2, 4}, {1, 4, 3, 4, -1, 0, -2, 5});
  return OpCases("TopK")
      .Add(RandomTopK({3, 1000}, 1, 2, true))
      .Add(RandomTopK({3, 1000}, 1, 2, false))
      .Add(RandomTopK({1, 20000}, 1, 60, true))
      .Add(RandomTopK({1, 20000}, 1, 60, false))
      .Add(RandomTopK({200, 3}, 0, 120, true))
      .Add(RandomTopK({5, 40}, 1, 40, false))
      .Add(RandomTopK({40, 128}, 1, 8, true))
      .Add(RandomTopK({40, 128}, 1, 8, false))
      .Add(RandomTopK({7, 77}, 1, 16, true))
      .Add(RandomTopK({7, 301}, 1, 32, false))
      .Add(RandomTopK({300, 70}, 0, 6, true))
      .Add("lower_index_first", {x, Ints({1}, {2})},
           {Floats({2, 2}, {4, 4, 5, 0}), Ints({2, 2}, {1, 3, 3, 1})})
      .Add("smallest", {x, Ints({1}, {3})},
           {Floats({2, 3}, {1, 3, 4, -2, -1, 0}), Ints({2, 3}, {0, 2, 1, 2, 0, 1})},
           {{"largest", 0}})
      .Add("first_axis", {x, Ints({1}, {1})},
           {Floats({1, 4}, {1, 4, 3, 5}), Ints({1, 4}, {0, 0, 0, 1})}, {{"axis", 0}})
      .Add("none", {x, Ints({1}, {0})}, {Floats({2, 0}, {}), Ints({2, 0}, {})})
      .Add("nan_is_largest", {Floats({3}, {1, kNan, 2}), Ints({1}, {2})},
           {Floats({2}, {kNan, 2}), Ints({2}, {1, 2})})
      .Rejects({.inputs = {x, Ints({1}, {5})}, .num_outputs = 2},
               "k is 5, but axis 1 has 4 elements");
}

// Rows longer than vectors of floats in which the best are many, and those with numbers that are
// none.
OpCases ArgCases(std::string_view op) {
  std::vector<float> few(5 * 131);
  for (size_t i = 0; i < few.size(); ++i) few[i] = static_cast<float>(i * i % 23);
  std::vector<float> odd(4 * 70, 2.0f);
  odd[0] = kNan;
  odd[70 + 1] = kNan;
  odd[70 + 68] = 5;
  odd[2 * 70 + 33] = -0.0f;
  for (size_t i = 3 * 70; i < odd.size(); ++i) odd[i] = i % 2 == 0 ? 0.0f : -0.0f;
  OpCases cases(op);
  for (const int64_t last : {0, 1}) {
    const AttributeList attributes = {{"axis", 1}, {"select_last_index", last}};
    const std::string suffix = last != 0 ? "_last" : "_first";
    cases.Add(
        {.name = "few" + suffix, .inputs = {Floats({5, 131}, few)}, .attributes = attributes});
    cases.Add({.name = "odd" + suffix, .inputs = {Floats({4, 70}, odd)}, .attributes = attributes});
    cases.Add({.name = "random" + suffix,
               .inputs = {Random(DataType::kFloat, {3, 1000}, Uniform{-2, 2}, 11)},
               .attributes = attributes});
    cases.Add({.name = "one" + suffix,
               .inputs = {Random(DataType::kFloat, {7, 1}, Uniform{-2, 2}, 12)},
               .attributes = attributes});
  }
  return cases;
}

OpCases ArgMaxCases() {
  const Tensor x = Floats({2, 3}, {1, 7, 7, 5, 2, 0});
  return ArgCases("ArgMax")
      .Add("first", {x}, {Ints({2, 1}, {1, 0})}, {{"axis", 1}})
      .Add("last", {x}, {Ints({2}, {2, 0})},
           {{"axis", -1}, {"keepdims", 0}, {"select_last_index", 1}})
      .Add("columns", {x}, {Ints({1, 3}, {1, 0, 0})})
      .Rejects({Floats({0, 2}, {})}, "axis 0 is empty");
}

OpCases ArgMinCases() {
  return ArgCases("ArgMin")
      .Add("ties", {Floats({4}, {2, 1, 3, 1})}, {Ints({1}, {1})})
      .Add("last", {Floats({4}, {2, 1, 3, 1})}, {Ints({1}, {3})}, {{"select_last_index", 1}});
}

}  // namespace pagefuse::onnx_ops
