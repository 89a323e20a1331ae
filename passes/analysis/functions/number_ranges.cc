// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/number_ranges.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/analysis/functions/number_range_rules.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

// Weights that are not read as a whole.
constexpr int64_t kMostRead = 1 << 16;
constexpr double kLargestWeight = 1 << 16;
constexpr double kLargestGiven = 1 << 16;
constexpr int kMostDepth = 2048;

// Integers, which are finite.
NumberRange OfIntegers(DataType type) {
  constexpr double kTypical = 16;
  const auto held = ExactIntegers(type);
  return held ? NumberRange::Between(held->least, held->most, std::min(kTypical, held->most))
              : NumberRange::Any();
}

bool IsNumbers(DataType type) {
  return type == DataType::kBool || IsInteger(type) || IsFloatingPoint(type);
}

// A run of elements of the tensor as doubles.
bool ReadRun(const Tensor& tensor, int64_t first, int64_t count, double* to) {
  const int64_t bits = BitWidth(tensor.dtype());
  if (bits < 8 || !tensor.data()) return false;
  const auto* bytes = static_cast<const std::byte*>(tensor.data()) + first * bits / 8;
  return DecodeToDouble(tensor.dtype(), bytes, count, to).ok();
}

NumberRange OfConstant(const Tensor& tensor) {
  constexpr int64_t kRun = 32, kRuns = 32;
  if (!IsNumbers(tensor.dtype()) || BitWidth(tensor.dtype()) < 8) {
    return OfIntegers(tensor.dtype());
  }
  const NumberRange weights = NumberRange::Between(-kLargestWeight, kLargestWeight, 1);
  if (IsAbsent(tensor)) return weights;
  if (tensor.size() == 0) return NumberRange::Between(0, 0, 0);
  const bool whole = tensor.size() <= kMostRead;
  const int64_t run = whole ? tensor.size() : kRun;
  const int64_t step = whole ? run : std::max(tensor.size() / kRuns, run);
  std::vector<double> numbers(run);
  NumberRange range = NumberRange::Between(NumberRange::kInfinity, -NumberRange::kInfinity, 0);
  double squares = 0;
  int64_t count = 0;
  for (int64_t first = 0; first + run <= tensor.size(); first += step) {
    if (!ReadRun(tensor, first, run, numbers.data())) return NumberRange::Any();
    for (const double x : numbers) {
      range.nan = range.nan || std::isnan(x);
      range.least = std::min(range.least, x);
      range.most = std::max(range.most, x);
      if (std::isfinite(x)) squares += x * x;
    }
    count += run;
  }
  range.typical = std::sqrt(squares / static_cast<double>(count));
  if (whole || !range.finite()) return range;
  const double typical = range.typical;
  return NumberRange::Between(std::min(range.least, -kLargestWeight),
                              std::max(range.most, kLargestWeight), typical);
}

}  // namespace

NumberRange NumberRanges::OfGiven() {
  return NumberRange::Between(-kLargestGiven, kLargestGiven, 1);
}

NumberRange NumberRanges::Input(const Node& node, int i) {
  const Value* value = node.input(i);
  return value ? Of(value) : NumberRange::Between(0, 0, 0);
}

NumberRange NumberRanges::Of(const Value* value) {
  if (const auto known = known_.find(value); known != known_.end()) return known->second;
  if (depth_ >= kMostDepth) return NumberRange::Any();
  ++depth_;
  // What leads back to itself is not known.
  known_.emplace(value, NumberRange::Any());
  const NumberRange range = Within(value->dtype(), Read(*value));
  --depth_;
  return known_[value] = range;
}

const Value* NumberRanges::CauseOf(const Value* value) {
  absl::flat_hash_set<const Value*> seen;
  return CauseOf(value, seen);
}

const Value* NumberRanges::CauseOf(const Value* value, absl::flat_hash_set<const Value*>& seen) {
  if (!seen.insert(value).second || seen.size() > kMostDepth || Of(value).finite()) return nullptr;
  if (ConstantOf(value)) return value;
  const Node* node = value->producer();
  // Casts are meant to fit.
  if (!node || node->Is("Cast") || !FindRangeRule(*node)) return nullptr;
  bool finite = true;
  for (const Value* input : node->inputs()) {
    if (!input || Of(input).finite()) continue;
    finite = false;
    if (const Value* cause = CauseOf(input, seen)) return cause;
  }
  // Norms and sums, which are never negative, are not 0 but for rows of zeros.
  const int divisor = node->Is("Div") ? 1 : node->Is("Reciprocal") ? 0 : -1;
  const bool by_norm = divisor >= 0 && Of(node->input(divisor)).never_negative();
  return finite && !by_norm ? value : nullptr;
}

bool NumberRanges::NeverNegative(const Value* value, int depth) const {
  constexpr int kMostSteps = 8;
  if (depth > kMostSteps) return false;
  if (const Tensor* tensor = ConstantOf(value)) return OfConstant(*tensor).never_negative();
  const Node* node = value->producer();
  if (!node) return false;
  if (IsAnyOf(*node, {"Abs", "Exp", "Sqrt", "Sigmoid", "Softmax", "Relu", "ReduceSumSquare"})) {
    return true;
  }
  if (node->Is("Mul") && node->input(0) == node->input(1)) return true;
  if (node->Is("Pow")) return NumberOf(node->input(1)) == 2.0;
  if (IsAnyOf(*node, {"ReduceMean", "ReduceSum", "ReduceMax", "Identity", "Cast"})) {
    return NeverNegative(node->input(0), depth + 1);
  }
  return IsAnyOf(*node, {"Add", "Mul", "Div"}) && NeverNegative(node->input(0), depth + 1) &&
         NeverNegative(node->input(1), depth + 1);
}

NumberRange NumberRanges::Read(const Value& value) {
  if (const Tensor* tensor = ConstantOf(&value)) return OfConstant(*tensor);
  const Node* node = value.producer();
  if (node && IsFloatingPoint(value.dtype())) {
    const RangeRule rule = FindRangeRule(*node);
    return rule ? rule({*this, *node, value.producer_index()}) : NumberRange::Any();
  }
  if (value.dtype() == DataType::kBool || IsInteger(value.dtype())) {
    return OfIntegers(value.dtype());
  }
  const bool given = value.is_input() && !value.graph()->parent();
  return given ? OfGiven() : NumberRange::Any();
}

NumberRange ScoresOf(const NumberRange& queries, const NumberRange& keys, const ScoreScale& scale) {
  const double factor = std::abs(scale.scale);
  const NumberRange scores = Product(SumOfProducts(queries, keys, scale.count),
                                     NumberRange::Between(-factor, factor, factor));
  if (scale.softcap == 0) return scores;
  const double cap = std::abs(scale.softcap);
  return NumberRange::Between(-cap, cap, std::min(cap, scores.typical));
}

double HidingNumber(const NumberRange& scores) {
  constexpr double kEstimates = 64;
  // e to it is 0 in floats.
  constexpr double kVanishes = 104;
  constexpr double kHighest = -1e4;
  const double size = std::min(scores.magnitude(), kEstimates * scores.typical);
  return std::min(-2 * size - kVanishes, kHighest);
}

}  // namespace pagefuse
