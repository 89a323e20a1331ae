// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/written_softmax.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

std::optional<int> WrittenSoftmax::ReducedAxis(const Element& element) const {
  const auto reduced = ReducedBy(*element.producer(), reader_.contents());
  return reduced ? std::optional(reduced->axis) : std::nullopt;
}

bool WrittenSoftmax::ReadPower(const Element& power, const IndexSymbolPtr& key) {
  if (!power.From("Exp")) return false;
  power_ = power;
  const Element shifted = reader_.Operand(power, 0);
  for (size_t axis = 0; axis < shifted.at.size(); ++axis) {
    if (shifted.at[axis].Mentions(key->key)) axis_ = static_cast<int>(axis);
  }
  if (axis_ < 0) return false;
  if (shifted.From("Sub")) {
    scores_ = {shifted.producer()->input(0), shifted.at};
    most_ = reader_.Operand(shifted, 1);
    if (ReadMost(most_)) return true;
    sink_.reset();
  }
  // Powers of the scores themselves.
  most_ = {};
  scores_ = {power.producer()->input(0), power.at};
  return true;
}

bool WrittenSoftmax::ReadLogProbability(const Element& power, const IndexSymbolPtr& key) {
  if (!ReadPower(power, key) || most_.value) return false;
  const Element difference = reader_.Operand(power, 0);
  if (difference.From("LogSoftmax")) {
    const auto rank = static_cast<int64_t>(difference.at.size());
    const auto axis = NormalAxis(IntOr(*difference.producer(), "axis", -1), rank);
    (void)reader_.Operand(difference, 0);
    scores_ = {difference.producer()->input(0), difference.at};
    return axis == axis_;
  }
  if (!difference.From("Sub")) return false;
  (void)reader_.Operand(difference, 0);
  scores_ = {difference.producer()->input(0), difference.at};
  const Element sum = reader_.Operand(difference, 1);
  if (!sum.From("ReduceLogSumExp")) return false;
  (void)reader_.Operand(sum, 0);
  return sum.producer()->input(0) == scores_.value && ReducedAxis(sum) == axis_;
}

bool WrittenSoftmax::ReadMost(const Element& most) {
  if (most.From("ReduceMax")) {
    (void)reader_.Operand(most, 0);
    return most.producer()->input(0) == scores_.value && ReducedAxis(most) == axis_;
  }
  if (most.From("Where")) {
    const auto inner = BehindGuard(most);
    return inner && ReadMost(*inner);
  }
  if (!most.From("Max") || most.producer()->num_inputs() != 2) return false;
  for (int side : {0, 1}) {
    const Element other = reader_.Operand(most, 1 - side);
    const Element inner = reader_.Operand(most, side);
    if (!inner.From("ReduceMax") || !ReadMost(inner)) continue;
    // A bound that only hidden scores are below.
    const auto bound = reader_.Number(other);
    if (bound) return HidesScore(*bound);
    sink_ = other;
    return true;
  }
  return false;
}

bool WrittenSoftmax::ReadSum(const Element& sum) {
  if (sum.From("ReduceSum")) {
    (void)reader_.Operand(sum, 0);
    if (!sum_) sum_ = sum;
    return sum.producer()->input(0) == power_.value && ReducedAxis(sum) == axis_;
  }
  if (sum.From("Where")) {
    const auto inner = BehindGuard(sum);
    return inner && ReadSum(*inner);
  }
  if (!sum.From("Add")) return false;
  if (!sum_) sum_ = sum;
  for (int side : {0, 1}) {
    const Element powers = reader_.Operand(sum, side);
    if (powers.From("ReduceSum") && ReadSum(powers)) {
      return ReadSinkPower(reader_.Operand(sum, 1 - side));
    }
  }
  return false;
}

bool WrittenSoftmax::ReadLogSum(const Element& element) {
  if (element.From("Where")) {
    for (int side : {1, 2}) {
      if (const auto number = reader_.Number(reader_.Operand(element, side))) empty_ = number;
    }
    const auto inner = BehindGuard(element);
    return inner && ReadLogSum(*inner);
  }
  if (!sum_) return false;
  if (!most_.value && element.From("Log")) return IsLogOfSum(element);
  if (!element.From("Add")) return false;
  for (int side : {0, 1}) {
    const Element log = reader_.Operand(element, side);
    if (!log.From("Log")) continue;
    return most_.value && IsLogOfSum(log) && ReadMost(reader_.Operand(element, 1 - side));
  }
  return false;
}

bool WrittenSoftmax::IsLogOfSum(const Element& log) {
  Element sum = reader_.Operand(log, 0);
  if (sum.From("Where")) sum = BehindGuard(sum).value_or(sum);
  return sum.Key() == sum_->Key();
}

// exp(sink - most)
bool WrittenSoftmax::ReadSinkPower(const Element& power) {
  if (!power.From("Exp")) return false;
  const Element shifted = reader_.Operand(power, 0);
  Element sink = shifted;
  if (most_.value) {
    if (!shifted.From("Sub")) return false;
    sink = reader_.Operand(shifted, 0);
    if (reader_.Operand(shifted, 1).Key() != most_.Key()) return false;
  }
  if (sink_ && sink_->Key() != sink.Key()) return false;
  sink_ = sink;
  return true;
}

std::optional<Element> WrittenSoftmax::BehindGuard(const Element& choice) {
  const Element condition = reader_.Operand(choice, 0);
  for (int side : {1, 2}) {
    if (!reader_.Number(reader_.Operand(choice, side))) continue;
    const bool guards = side == 1 ? IsEmptyRow(condition) : IsFullRow(condition);
    if (guards) return reader_.Operand(choice, 3 - side);
  }
  return std::nullopt;
}

bool WrittenSoftmax::IsEmptyRow(const Element& condition) {
  if (condition.From("Not")) return IsFullRow(reader_.Operand(condition, 0));
  if (condition.From("IsInf")) {
    const Element most = reader_.Operand(condition, 0);
    return IntOr(*condition.producer(), "detect_negative", 1) != 0 && ReadMost(most);
  }
  const bool equal = condition.From("Equal");
  const bool less = condition.From("Less") || condition.From("LessOrEqual");
  const bool greater = condition.From("Greater") || condition.From("GreaterOrEqual");
  for (int side : {0, 1}) {
    if (!equal && !(side == 0 ? less : greater)) continue;
    const Element row = reader_.Operand(condition, side);
    const auto bound = reader_.Number(reader_.Operand(condition, 1 - side));
    if (!bound) continue;
    if (HidesScore(*bound) && ReadMost(row)) return true;
    if (*bound == 0 && !condition.From("Less") && !condition.From("Greater") && ReadSum(row)) {
      return true;
    }
  }
  return false;
}

bool WrittenSoftmax::IsFullRow(const Element& condition) {
  if (condition.From("Not")) return IsEmptyRow(reader_.Operand(condition, 0));
  for (int side : {0, 1}) {
    const bool above = side == 0 ? condition.From("Greater") || condition.From("GreaterOrEqual")
                                 : condition.From("Less") || condition.From("LessOrEqual");
    if (!above) continue;
    const Element row = reader_.Operand(condition, side);
    const auto bound = reader_.Number(reader_.Operand(condition, 1 - side));
    if (!bound) continue;
    if (HidesScore(*bound) && ReadMost(row)) return true;
    const bool strict = condition.From("Greater") || condition.From("Less");
    if (*bound == 0 && strict && ReadSum(row)) return true;
  }
  return false;
}

}  // namespace pagefuse
