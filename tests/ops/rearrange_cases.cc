// SPDX-License-Identifier: Apache-2.0
// Cases of ops that put elements in other places, and of those along one axis.
#include <limits>
#include <numeric>
#include <string>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

Tensor Counting(std::vector<int64_t> dims) {
  int64_t size = 1;
  for (int64_t dim : dims) size *= dim;
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 0.0f);
  return Floats(std::move(dims), values);
}

}  // namespace

OpCases DepthToSpaceCases() {
  return OpCases("DepthToSpace")
      .Add("depth_first", {Counting({1, 8, 1, 1})},
           {Floats({1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7})}, {{"blocksize", 2}})
      .Add("columns_first", {Counting({1, 8, 1, 1})},
           {Floats({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7})}, {{"blocksize", 2}, {"mode", "CRD"}})
      .Attributes({{"blocksize", 3}})
      .Shapes({{2, 18, 3, 5}, {1, 9, 0, 2}})
      .Rejects({Counting({1, 6, 1, 1})}, {{"blocksize", 2}}, "4 does not divide a dim");
}

OpCases SpaceToDepthCases() {
  return OpCases("SpaceToDepth")
      .Add("one_block", {Counting({1, 2, 2, 2})}, {Floats({1, 8, 1, 1}, {0, 4, 1, 5, 2, 6, 3, 7})},
           {{"blocksize", 2}})
      .Attributes({{"blocksize", 2}})
      .Shapes({{2, 3, 4, 6}})
      .Rejects({Counting({1, 1, 3, 2})}, {{"blocksize", 2}}, "2 does not divide a dim");
}

OpCases ReverseSequenceCases() {
  return OpCases("ReverseSequence")
      .Add("time_first", {Counting({3, 2}), Ints({2}, {2, 3})},
           {Floats({3, 2}, {2, 5, 0, 3, 4, 1})})
      .Add("batch_first", {Counting({2, 3}), Ints({2}, {0, 2})},
           {Floats({2, 3}, {0, 1, 2, 4, 3, 5})}, {{"batch_axis", 0}, {"time_axis", 1}})
      .Rejects({Counting({3, 2}), Ints({2}, {2, 4})}, "index 4 is out of range [0, 4)");
}

OpCases CenterCropPadCases() {
  return OpCases("CenterCropPad")
      .Add("crops_and_pads", {Counting({4, 2}), Ints({2}, {2, 5})},
           {Floats({2, 5}, {0, 2, 3, 0, 0, 0, 4, 5, 0, 0})})
      .Add("one_axis", {Counting({1, 3}), Ints({1}, {2})}, {Floats({1, 2}, {0, 1})},
           {{"axes", std::vector<int64_t>{-1}}})
      .Rejects({Counting({4, 2}), Ints({1}, {2})}, "expected 2 sizes");
}

OpCases EyeLikeCases() {
  return OpCases("EyeLike")
      .Add("above", {Counting({2, 3})}, {Floats({2, 3}, {0, 1, 0, 0, 0, 1})}, {{"k", 1}})
      .Add("below_as_int64", {Counting({3, 2})}, {Ints({3, 2}, {0, 0, 0, 0, 1, 0})},
           {{"dtype", 7}, {"k", -2}})
      .Rejects({Counting({3})}, "expected rank 2");
}

OpCases CompressCases() {
  return OpCases("Compress")
      .Add("rows", {Counting({3, 2}), Bools({3}, {true, false, true})},
           {Floats({2, 2}, {0, 1, 4, 5})}, {{"axis", 0}})
      .Add("short_condition", {Counting({3, 2}), Bools({2}, {false, true})},
           {Floats({1, 2}, {2, 3})}, {{"axis", -2}})
      .Add("flattened", {Counting({2, 2}), Bools({4}, {true, false, false, true})},
           {Floats({2}, {0, 3})})
      .Rejects({Counting({2}), Bools({3}, {true, true, true})}, "at most 2 elements");
}

OpCases UniqueCases() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return OpCases("Unique")
      .Add("sorted", {Floats({6}, {2, 1, 1, 3, 4, 3})},
           {Floats({4}, {1, 2, 3, 4}), Ints({4}, {1, 0, 3, 4}), Ints({6}, {1, 0, 0, 2, 3, 2}),
            Ints({4}, {2, 1, 2, 1})})
      .Add("in_order_of_appearance", {Floats({4}, {2, 1, 1, kNan})},
           {Floats({3}, {2, 1, kNan}), Ints({3}, {0, 1, 3}), Ints({4}, {0, 1, 1, 2}),
            Ints({3}, {1, 2, 1})},
           {{"sorted", 0}})
      .Add("rows", {Floats({3, 2}, {1, 0, 1, 0, 0, 9})},
           {Floats({2, 2}, {0, 9, 1, 0}), Ints({2}, {2, 0}), Ints({3}, {1, 1, 0}),
            Ints({2}, {1, 2})},
           {{"axis", 0}});
}

OpCases ScatterCases() {
  return OpCases("Scatter")
      .Add("along_axis_1", {Counting({1, 4}), Ints({1, 2}, {1, -1}), Floats({1, 2}, {8, 9})},
           {Floats({1, 4}, {0, 8, 2, 9})}, {{"axis", 1}})
      .Rejects({Counting({1, 4}), Ints({1, 1}, {4}), Floats({1, 1}, {8})}, {{"axis", 1}},
               "out of range");
}

OpCases CumProdCases() {
  return OpCases("CumProd")
      .Add("plain", {Floats({3}, {2, 3, 4}), Ints({}, {0})}, {Floats({3}, {2, 6, 24})})
      .Add("exclusive_from_the_back", {Ints({1, 3}, {2, 3, 4}), Ints({}, {-1})},
           {Ints({1, 3}, {12, 4, 1})}, {{"exclusive", 1}, {"reverse", 1}})
      .Rejects({Floats({3}, {2, 3, 4}), Ints({}, {1})}, "axis 1 is out of range");
}

OpCases HardmaxCases() {
  return OpCases("Hardmax")
      .Exact({{1, 3, 2, 3}}, {{0, 1, 0, 0}})
      .Add("columns", {Floats({2, 2}, {1, 3, 2, 0})}, {Floats({2, 2}, {0, 1, 1, 0})}, {{"axis", 0}})
      .Shapes({{3, 5}, {2, 0}})
      .Rejects({Floats({1}, {1})}, {{"axis", 1}}, "out of range");
}

OpCases EinsumCases() {
  const auto equation = [](const char* text) {
    return AttributeList{{"equation", std::string(text)}};
  };
  return OpCases("Einsum")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add("matrices", {Floats({2, 2}, {1, 2, 3, 4}), Floats({2, 2}, {5, 6, 7, 8})},
           {Floats({2, 2}, {19, 22, 43, 50})}, equation("ij,jk->ik"))
      .Add("implicit_output_is_sorted", {Counting({2, 3})}, {Floats({3, 2}, {0, 3, 1, 4, 2, 5})},
           equation("ba"))
      .Add("diagonals_of_a_stack", {Counting({2, 2, 2})}, {Floats({2, 2}, {0, 3, 4, 7})},
           equation("...ii->...i"))
      .Add("all", {Ints({2}, {2, 3}), Ints({2}, {4, 5})}, {Ints({}, {23})}, equation("i, i"))
      .Add("broadcast_ellipsis", {Counting({2, 1, 2}), Counting({3, 2})},
           {Floats({2, 3}, {1, 3, 5, 3, 13, 23})}, equation("...k,...k->..."))
      .Attributes(equation("bqhd,bkhd->bhqk"))
      .ShapeSets({{{2, 9, 3, 5}, {2, 7, 3, 5}}, {{1, 6, 1, 8}, {1, 6, 1, 8}}})
      .Attributes(equation("aib,cia->bca"))
      .ShapeSets({{{4, 3, 5}, {6, 3, 4}}})
      .Attributes(equation("bij,bjk->bik"))
      .ShapeSets({{{2, 3, 5}, {2, 5, 4}}, {{1, 2, 0}, {1, 0, 2}}})
      .Rejects({Counting({2, 3})}, equation("i->i"), "does not fit rank")
      .Rejects({Counting({2, 3})}, equation("ij->k"), "output label 'k'")
      .Rejects({Counting({2, 3}), Counting({2})}, equation("ij,j->i"), "expected 3");
}

}  // namespace pagefuse::onnx_ops
