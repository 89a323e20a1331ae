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
      .Add({.name = "depth_first",
            .inputs = {Counting({1, 8, 1, 1})},
            .attributes = {{"blocksize", int64_t{2}}},
            .outputs = {Floats({1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7})}})
      .Add({.name = "columns_first",
            .inputs = {Counting({1, 8, 1, 1})},
            .attributes = {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}},
            .outputs = {Floats({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7})}})
      .Attributes({{"blocksize", int64_t{3}}})
      .Shapes({{2, 18, 3, 5}, {1, 9, 0, 2}})
      .Rejects({.inputs = {Counting({1, 6, 1, 1})}, .attributes = {{"blocksize", int64_t{2}}}},
               "4 does not divide a dim");
}

OpCases SpaceToDepthCases() {
  return OpCases("SpaceToDepth")
      .Add({.name = "one_block",
            .inputs = {Counting({1, 2, 2, 2})},
            .attributes = {{"blocksize", int64_t{2}}},
            .outputs = {Floats({1, 8, 1, 1}, {0, 4, 1, 5, 2, 6, 3, 7})}})
      .Attributes({{"blocksize", int64_t{2}}})
      .Shapes({{2, 3, 4, 6}})
      .Rejects({.inputs = {Counting({1, 1, 3, 2})}, .attributes = {{"blocksize", int64_t{2}}}},
               "2 does not divide a dim");
}

OpCases ReverseSequenceCases() {
  return OpCases("ReverseSequence")
      .Add({.name = "time_first",
            .inputs = {Counting({3, 2}), Ints({2}, {2, 3})},
            .outputs = {Floats({3, 2}, {2, 5, 0, 3, 4, 1})}})
      .Add({.name = "batch_first",
            .inputs = {Counting({2, 3}), Ints({2}, {0, 2})},
            .attributes = {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}},
            .outputs = {Floats({2, 3}, {0, 1, 2, 4, 3, 5})}})
      .Rejects({.inputs = {Counting({3, 2}), Ints({2}, {2, 4})}}, "index 4 is out of range [0, 4)");
}

OpCases CenterCropPadCases() {
  return OpCases("CenterCropPad")
      .Add({.name = "crops_and_pads",
            .inputs = {Counting({4, 2}), Ints({2}, {2, 5})},
            .outputs = {Floats({2, 5}, {0, 2, 3, 0, 0, 0, 4, 5, 0, 0})}})
      .Add({.name = "one_axis",
            .inputs = {Counting({1, 3}), Ints({1}, {2})},
            .attributes = {{"axes", std::vector<int64_t>{-1}}},
            .outputs = {Floats({1, 2}, {0, 1})}})
      .Rejects({.inputs = {Counting({4, 2}), Ints({1}, {2})}}, "expected 2 sizes");
}

OpCases EyeLikeCases() {
  return OpCases("EyeLike")
      .Add({.name = "above",
            .inputs = {Counting({2, 3})},
            .attributes = {{"k", int64_t{1}}},
            .outputs = {Floats({2, 3}, {0, 1, 0, 0, 0, 1})}})
      .Add({.name = "below_as_int64",
            .inputs = {Counting({3, 2})},
            .attributes = {{"dtype", int64_t{7}}, {"k", int64_t{-2}}},
            .outputs = {Ints({3, 2}, {0, 0, 0, 0, 1, 0})}})
      .Rejects({.inputs = {Counting({3})}}, "expected rank 2");
}

OpCases CompressCases() {
  return OpCases("Compress")
      .Add({.name = "rows",
            .inputs = {Counting({3, 2}), Bools({3}, {true, false, true})},
            .attributes = {{"axis", int64_t{0}}},
            .outputs = {Floats({2, 2}, {0, 1, 4, 5})}})
      .Add({.name = "short_condition",
            .inputs = {Counting({3, 2}), Bools({2}, {false, true})},
            .attributes = {{"axis", int64_t{-2}}},
            .outputs = {Floats({1, 2}, {2, 3})}})
      .Add({.name = "flattened",
            .inputs = {Counting({2, 2}), Bools({4}, {true, false, false, true})},
            .outputs = {Floats({2}, {0, 3})}})
      .Rejects({.inputs = {Counting({2}), Bools({3}, {true, true, true})}}, "at most 2 elements");
}

OpCases UniqueCases() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return OpCases("Unique")
      .Add({.name = "sorted",
            .inputs = {Floats({6}, {2, 1, 1, 3, 4, 3})},
            .outputs = {Floats({4}, {1, 2, 3, 4}), Ints({4}, {1, 0, 3, 4}),
                        Ints({6}, {1, 0, 0, 2, 3, 2}), Ints({4}, {2, 1, 2, 1})}})
      .Add({.name = "in_order_of_appearance",
            .inputs = {Floats({4}, {2, 1, 1, kNan})},
            .attributes = {{"sorted", int64_t{0}}},
            .outputs = {Floats({3}, {2, 1, kNan}), Ints({3}, {0, 1, 3}), Ints({4}, {0, 1, 1, 2}),
                        Ints({3}, {1, 2, 1})}})
      .Add({.name = "rows",
            .inputs = {Floats({3, 2}, {1, 0, 1, 0, 0, 9})},
            .attributes = {{"axis", int64_t{0}}},
            .outputs = {Floats({2, 2}, {0, 9, 1, 0}), Ints({2}, {2, 0}), Ints({3}, {1, 1, 0}),
                        Ints({2}, {1, 2})}});
}

OpCases ScatterCases() {
  return OpCases("Scatter")
      .Add({.name = "along_axis_1",
            .inputs = {Counting({1, 4}), Ints({1, 2}, {1, -1}), Floats({1, 2}, {8, 9})},
            .attributes = {{"axis", int64_t{1}}},
            .outputs = {Floats({1, 4}, {0, 8, 2, 9})}})
      .Rejects({.inputs = {Counting({1, 4}), Ints({1, 1}, {4}), Floats({1, 1}, {8})},
                .attributes = {{"axis", int64_t{1}}}},
               "out of range");
}

OpCases CumProdCases() {
  return OpCases("CumProd")
      .Add({.name = "plain",
            .inputs = {Floats({3}, {2, 3, 4}), Ints({}, {0})},
            .outputs = {Floats({3}, {2, 6, 24})}})
      .Add({.name = "exclusive_from_the_back",
            .inputs = {Ints({1, 3}, {2, 3, 4}), Ints({}, {-1})},
            .attributes = {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}},
            .outputs = {Ints({1, 3}, {12, 4, 1})}})
      .Rejects({.inputs = {Floats({3}, {2, 3, 4}), Ints({}, {1})}}, "axis 1 is out of range");
}

OpCases HardmaxCases() {
  return OpCases("Hardmax")
      .Exact({{1, 3, 2, 3}}, {{0, 1, 0, 0}})
      .Add({.name = "columns",
            .inputs = {Floats({2, 2}, {1, 3, 2, 0})},
            .attributes = {{"axis", int64_t{0}}},
            .outputs = {Floats({2, 2}, {0, 1, 1, 0})}})
      .Shapes({{3, 5}, {2, 0}})
      .Rejects({.inputs = {Floats({1}, {1})}, .attributes = {{"axis", int64_t{1}}}},
               "out of range");
}

OpCases EinsumCases() {
  const auto equation = [](const char* text) {
    return std::vector<std::pair<std::string, AttributeValue>>{{"equation", std::string(text)}};
  };
  return OpCases("Einsum")
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums of products cancel")
      .Add({.name = "matrices",
            .inputs = {Floats({2, 2}, {1, 2, 3, 4}), Floats({2, 2}, {5, 6, 7, 8})},
            .attributes = equation("ij,jk->ik"),
            .outputs = {Floats({2, 2}, {19, 22, 43, 50})}})
      .Add({.name = "implicit_output_is_sorted",
            .inputs = {Counting({2, 3})},
            .attributes = equation("ba"),
            .outputs = {Floats({3, 2}, {0, 3, 1, 4, 2, 5})}})
      .Add({.name = "diagonals_of_a_stack",
            .inputs = {Counting({2, 2, 2})},
            .attributes = equation("...ii->...i"),
            .outputs = {Floats({2, 2}, {0, 3, 4, 7})}})
      .Add({.name = "all",
            .inputs = {Ints({2}, {2, 3}), Ints({2}, {4, 5})},
            .attributes = equation("i, i"),
            .outputs = {Ints({}, {23})}})
      .Add({.name = "broadcast_ellipsis",
            .inputs = {Counting({2, 1, 2}), Counting({3, 2})},
            .attributes = equation("...k,...k->..."),
            .outputs = {Floats({2, 3}, {1, 3, 5, 3, 13, 23})}})
      .Attributes(equation("bqhd,bkhd->bhqk"))
      .ShapeSets({{{2, 9, 3, 5}, {2, 7, 3, 5}}, {{1, 6, 1, 8}, {1, 6, 1, 8}}})
      .Attributes(equation("aib,cia->bca"))
      .ShapeSets({{{4, 3, 5}, {6, 3, 4}}})
      .Attributes(equation("bij,bjk->bik"))
      .ShapeSets({{{2, 3, 5}, {2, 5, 4}}, {{1, 2, 0}, {1, 0, 2}}})
      .Rejects({.inputs = {Counting({2, 3})}, .attributes = equation("i->i")}, "does not fit rank")
      .Rejects({.inputs = {Counting({2, 3})}, .attributes = equation("ij->k")}, "output label 'k'")
      .Rejects({.inputs = {Counting({2, 3}), Counting({2})}, .attributes = equation("ij,j->i")},
               "expected 3");
}

}  // namespace pagefuse::onnx_ops
