// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/passes/edit/constants.h"

namespace pagefuse {

std::vector<float> FactorsOn(const ComputedRegion& region, const Value* port) {
  absl::flat_hash_set<const Value*> derived = {port};
  std::vector<float> factors;
  for (const Node* node : region.nodes) {
    const auto& inputs = node->inputs();
    if (std::ranges::none_of(inputs, [&](const Value* input) { return derived.contains(input); })) {
      continue;
    }
    for (const Value* output : node->outputs()) derived.insert(output);
    if (!node->Is("Mul") && !node->Is("Div")) continue;
    for (const Value* input : inputs) {
      const auto number = NumberOf(input);
      if (!number || *number == 0) continue;
      const bool divides = node->Is("Div") && input == node->input(1);
      factors.push_back(divides ? 1.0f / static_cast<float>(*number) : static_cast<float>(*number));
    }
  }
  return factors;
}

std::vector<float> Epsilons(const ComputedRegion& region) {
  std::vector<float> epsilons;
  const auto add = [&](double number) {
    const auto epsilon = static_cast<float>(number);
    if (epsilon > 0 && epsilon < 0.01f) AddOnce(epsilon, epsilons);
  };
  for (const Node* node : region.nodes) {
    if (const Attribute* attribute = node->attribute("epsilon")) {
      if (const auto* number = std::get_if<float>(&attribute->value)) add(*number);
    }
    if (!node->Is("Add")) continue;
    for (const Value* input : node->inputs()) {
      const auto number = NumberOf(input);
      if (number) add(*number);
    }
  }
  return epsilons;
}

namespace {

// What a node divides integers by, or takes remainders of: also by shifts, bits, and in floats.
std::optional<int64_t> DivisorOf(const Node& node) {
  const bool divides = node.Is("Div") || node.Is("Mod");
  const bool shifts = node.Is("BitShift") && StringOr(node, "direction", "") == "RIGHT";
  if (!divides && !shifts && !node.Is("BitwiseAnd")) return std::nullopt;
  for (const Value* input : node.inputs()) {
    if (divides && input != node.input(1)) continue;
    const auto number = NumberOf(input);
    constexpr double kMost = 1 << 20;
    if (!number || *number < 1 || *number > kMost || *number != std::floor(*number)) continue;
    const auto integer = static_cast<int64_t>(*number);
    constexpr int64_t kMostBits = 20;
    if (shifts && integer > kMostBits) continue;
    return shifts ? int64_t{1} << integer : divides ? integer : integer + 1;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> Divisors(const std::vector<Node*>& nodes) {
  std::vector<int64_t> divisors;
  // Those of integers first: floats are divided by much else.
  for (const bool integers : {true, false}) {
    for (const Node* node : nodes) {
      if (node->num_outputs() == 0 || IsInteger(node->output(0)->dtype()) != integers) continue;
      if (const auto divisor = DivisorOf(*node)) AddOnce(*divisor, divisors);
    }
  }
  AddOnce(int64_t{1}, divisors);
  return divisors;
}

std::vector<float> BoundsOf(const std::vector<Node*>& nodes) {
  constexpr float kLeast = 0.5f, kMost = 1e4f;
  constexpr size_t kMostBounds = 8;
  std::vector<float> bounds;
  for (const Node* node : nodes) {
    for (const Value* input : node->inputs()) {
      const Tensor* constant = input ? ConstantOf(input) : nullptr;
      if (!constant || !IsFloatingPoint(constant->dtype())) continue;
      const auto number = static_cast<float>(std::abs(ScalarNumber(*constant).value_or(0)));
      if (number >= kLeast && number <= kMost && bounds.size() < kMostBounds) {
        AddOnce(number, bounds);
      }
    }
  }
  return bounds;
}

std::vector<int64_t> IntegersOf(const std::vector<Node*>& nodes) {
  std::vector<int64_t> integers = {0};
  for (const Node* node : nodes) {
    for (const Value* input : node->inputs()) {
      const Tensor* constant = input ? ConstantOf(input) : nullptr;
      if (!constant || !IsInteger(constant->dtype()) || constant->size() == 0) continue;
      const auto numbers = IntegerValues(*constant);
      if (!numbers.ok()) continue;
      // A folded Range says where it began.
      if (numbers->size() == 1 || numbers->front() < 0) {
        AddOnce(std::abs(numbers->front()), integers);
      }
    }
  }
  return integers;
}

}  // namespace pagefuse
