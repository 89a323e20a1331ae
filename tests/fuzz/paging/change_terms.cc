// SPDX-License-Identifier: Apache-2.0
// More terms: on scores, positions, masks and rows; and numbers at the ends of what passes probe.
#include <cmath>
#include <limits>

#include "change_parts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

bool IsAnyFloat(const Value& value) { return testing::IsFloat(&value); }
bool IsMatrix(const Value& value) { return IsAnyFloat(value) && testing::RankOf(&value) >= 2; }
bool IsInteger(const Value& value) { return testing::IsSignedInteger(&value); }
bool IsBool(const Value& value) { return value.dtype() == DataType::kBool; }

using Fits = bool (*)(const Value&);

// op (x, number), or op (number, x).
Change WithNumber(const char* op, double number, Fits fits, bool number_first = false) {
  const std::string name = StrCat(fits == IsInteger ? "integers: " : "floats: ",
                                  number_first ? StrCat(number, " ", op) : StrCat(op, " ", number));
  return {
      "terms", name, [=](Node& node, Random& random) {
        return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) {
          Value* other = NumberLike(rewriter, *value, number);
          if (!other) return other;
          return number_first ? rewriter.Add(op, {other, value}) : rewriter.Add(op, {value, other});
        });
      }};
}

Change ByOp(const char* op, Fits fits) {
  return {"terms",
          StrCat(fits == IsInteger ? "integers: "
                 : fits == IsBool  ? "bools: "
                                   : "floats: ",
                 op),
          [=](Node& node, Random& random) {
            return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) {
              return rewriter.Add(op, {value});
            });
          }};
}

Value* LengthOf(Rewriter& rewriter, Value* value, int axis) {
  Value* index = rewriter.Constant(Tensor::Of<int64_t>({}, {axis}));
  return rewriter.AddInt("Gather", {rewriter.Add("Shape", {value}), index}, "axis", 0);
}

// 0, 1, .. along the axis, in the rank of the value.
Value* PlacesAlong(Rewriter& rewriter, Value* value, int axis) {
  const auto number = [&](int64_t x) { return rewriter.Constant(Tensor::Of<int64_t>({}, {x})); };
  Value* size = LengthOf(rewriter, value, axis);
  Value* places = rewriter.Add("Range", {number(0), size, number(1)});
  std::vector<int64_t> view(static_cast<size_t>(testing::RankOf(value)), 1);
  view[static_cast<size_t>(axis)] = -1;
  return rewriter.Add("Reshape", {places, rewriter.Ints(view)});
}

// Places of rows or columns, scaled, added to what has them, as a float or an integer.
bool PlacesAdded(Node& node, Random& random) {
  const auto fits = [](const Value& value) {
    return testing::RankOf(&value) >= 2 && (IsAnyFloat(value) || IsInteger(value));
  };
  return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) -> Value* {
    const int axis = static_cast<int>(random() % testing::RankOf(value));
    Value* places = rewriter.Cast(PlacesAlong(rewriter, value, axis), value->dtype());
    if (IsAnyFloat(*value)) {
      places = rewriter.Add("Mul", {places, NumberLike(rewriter, *value, 0.125)});
    }
    return rewriter.Add("Add", {value, places});
  });
}

// A constant for each place of an axis that is a number.
bool ConstantsAdded(Node& node, Random& random) {
  return ReplaceInput(node, random, IsMatrix, [&](Rewriter& rewriter, Value* value) -> Value* {
    const int rank = testing::RankOf(value);
    const int axis = static_cast<int>(random() % rank);
    const auto size = testing::DimAt(value, axis);
    constexpr int64_t kMostNumbers = 4096;
    if (!size || *size > kMostNumbers || value->dtype() != DataType::kFloat) return nullptr;
    std::vector<float> numbers;
    for (int64_t i = 0; i < *size; ++i) numbers.push_back(static_cast<float>(i % 5) * 0.5F - 1);
    std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
    dims[static_cast<size_t>(axis)] = *size;
    return rewriter.Add(random() % 2 == 0 ? "Add" : "Mul",
                        {value, rewriter.Constant(Tensor::Of<float>(dims, numbers))});
  });
}

// x, but `number` in one column or row.
Change OnePlace(double number) {
  return {"terms", StrCat("floats: ", number, " at one place"),
          [number](Node& node, Random& random) {
            return ReplaceInput(
                node, random, IsMatrix, [&](Rewriter& rewriter, Value* value) -> Value* {
                  const int axis = static_cast<int>(random() % testing::RankOf(value));
                  const auto place = static_cast<int64_t>(random() % 3);
                  Value* there =
                      rewriter.Add("Equal", {PlacesAlong(rewriter, value, axis),
                                             rewriter.Constant(Tensor::Of<int64_t>({}, {place}))});
                  Value* other = NumberLike(rewriter, *value, number);
                  return other ? rewriter.Add("Where", {there, other, value}) : nullptr;
                });
          }};
}

// A bool at one place more, or one less.
bool OnePlaceSeen(Node& node, Random& random) {
  const auto fits = [](const Value& value) {
    return IsBool(value) && testing::RankOf(&value) >= 2;
  };
  return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) -> Value* {
    const int axis = static_cast<int>(random() % testing::RankOf(value));
    Value* there = rewriter.Add(
        "Equal",
        {PlacesAlong(rewriter, value, axis),
         rewriter.Constant(Tensor::Of<int64_t>({}, {static_cast<int64_t>(random() % 4)}))});
    if (random() % 2 == 0) return rewriter.Add("Or", {value, there});
    return rewriter.Add("And", {value, rewriter.Add("Not", {there})});
  });
}

// An earlier value that varies.
Value* PickEarlier(const Node& node, Random& random, Fits fits) {
  std::vector<Value*> found;
  for (const auto& before : node.graph()->nodes()) {
    if (before.get() == &node) break;
    for (Value* output : before->outputs()) {
      if (Varies(output) && fits(*output) && PickVaryingAxis(*output, random) >= 0) {
        found.push_back(output);
      }
    }
  }
  return found.empty() ? nullptr : PickOne(found, random);
}

// Lets a constant of the node be one more number that is made of an earlier value.
bool ConstantMovedBy(Node& node, Random& random, Fits fits,
                     const std::function<Value*(Rewriter& rewriter, Value* value)>& number) {
  if (node.num_inputs() < 2) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  Value* constant = node.input(index);
  if (!constant || !testing::ConstantTensor(constant) || !fits(*constant)) return false;
  Value* value = PickEarlier(node, random, IsAnyFloat);
  if (!value) return false;
  Rewriter rewriter(node);
  Value* more = rewriter.Cast(number(rewriter, value), constant->dtype());
  node.SetInput(index, rewriter.Add("Add", {constant, more}));
  return true;
}

// By how long a value is.
bool MovedByLength(Node& node, Random& random) {
  const Fits fits = random() % 2 == 0 ? IsInteger : IsAnyFloat;
  return ConstantMovedBy(node, random, fits, [&](Rewriter& rewriter, Value* value) {
    return LengthOf(rewriter, value, PickVaryingAxis(*value, random));
  });
}

// By the mean or the largest of all that a value holds.
bool MovedByAll(Node& node, Random& random) {
  return ConstantMovedBy(node, random, IsAnyFloat, [&](Rewriter& rewriter, Value* value) {
    return rewriter.AddInt(random() % 2 == 0 ? "ReduceMean" : "ReduceMax", {value}, "keepdims", 0);
  });
}

// By the largest of each row: a number a token, where the axes fit.
bool MovedByRows(Node& node, Random& random) {
  return ConstantMovedBy(node, random, IsAnyFloat, [&](Rewriter& rewriter, Value* value) {
    return rewriter.Add("ReduceMax", {value, rewriter.Ints({-1})});
  });
}

// A constant that is a mask's number, a bound or an index becomes another special one.
Change NumberBecomes(double number) {
  return {"numbers", StrCat("a number becomes ", number), [number](Node& node, Random& random) {
            if (node.num_inputs() == 0) return false;
            const int index = static_cast<int>(random() % node.num_inputs());
            const auto old = testing::ConstantNumber(node.input(index));
            if (!old || *old == number) return false;
            const Tensor like = *testing::ConstantTensor(node.input(index));
            const bool integer = IsInteger(*node.input(index));
            if (integer && (std::abs(number) > 1e9 || std::isnan(number))) return false;
            const Tensor changed = testing::FilledLike(like, number);
            if (!changed.defined()) return false;
            node.SetInput(index, Rewriter(node).Constant(changed));
            return true;
          }};
}

}  // namespace

std::vector<Change> TermChanges() {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<Change> changes = {{"terms", "places added", PlacesAdded},
                                 {"terms", "constants added", ConstantsAdded},
                                 {"terms", "one place of a bool", OnePlaceSeen},
                                 {"terms", "a constant moved by a length", MovedByLength},
                                 {"terms", "a constant moved by a value", MovedByAll},
                                 {"terms", "a constant moved by each row", MovedByRows},
                                 ByOp("Not", IsBool)};
  for (const char* op : {"Abs", "Neg", "Sign"}) {
    changes.push_back(ByOp(op, IsAnyFloat));
    changes.push_back(ByOp(op, IsInteger));
  }
  for (const char* op : {"Relu", "Tanh", "Sqrt", "Log", "Exp", "Reciprocal", "Floor", "Softplus"}) {
    changes.push_back(ByOp(op, IsAnyFloat));
  }
  for (const double number : {-1.0, 1.0, 2.0, 3.0, 30.0, 128.0}) {
    for (const char* op : {"Add", "Mul", "Div", "Mod", "Min", "Max"}) {
      changes.push_back(WithNumber(op, number, IsInteger));
    }
    changes.push_back(WithNumber("Sub", number, IsInteger, /*number_first=*/true));
  }
  for (const double number : {-1.0, 0.0, 0.5, 2.0, 100.0, -1e4, kInfinity}) {
    for (const char* op : {"Add", "Mul", "Min", "Max"}) {
      changes.push_back(WithNumber(op, number, IsAnyFloat));
    }
    changes.push_back(WithNumber("Sub", number, IsAnyFloat, /*number_first=*/true));
  }
  for (const double number : {0.0, 100.0, -1e4, kNothing, kInfinity, -kInfinity}) {
    changes.push_back(OnePlace(number));
  }
  for (const double number : {0.0, 1.0, -1.0, 2.0, 30.0, -128.0, 127.0, -100.0, -1e4, -1e9, 1e9,
                              kNothing, kInfinity, -kInfinity}) {
    changes.push_back(NumberBecomes(number));
  }
  return changes;
}

}  // namespace pagefuse::fuzz
