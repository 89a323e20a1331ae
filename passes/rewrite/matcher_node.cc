// SPDX-License-Identifier: Apache-2.0
// Comparing two nodes: attributes against each other and against the op's defaults.
#include <algorithm>
#include <array>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/rewrite/match_state.h"

namespace pagefuse {
namespace {

std::optional<int> RankOfInput(const Node& node, int index) {
  const Value* input = node.input(index);
  if (input == nullptr || !input->shape().has_value()) return std::nullopt;
  return input->shape()->rank();
}

// Axes from the front, where the rank of the graph's tensor is known; the reversed order for a
// missing `perm`.
std::optional<Attribute> Canonical(std::optional<Attribute> attribute, std::string_view name,
                                   const Node& graph_node) {
  const std::optional<int> rank = RankOfInput(graph_node, 0);
  if (!rank.has_value()) return attribute;
  if (name == "perm" && !attribute.has_value()) {
    std::vector<int64_t> reversed(*rank);
    for (int i = 0; i < *rank; ++i) reversed[i] = *rank - 1 - i;
    return MakeAttribute(std::move(reversed));
  }
  if (!attribute.has_value()) return attribute;
  if (name == "axis") {
    if (auto* axis = std::get_if<int64_t>(&attribute->value)) *axis = NormalAxis(*axis, *rank);
  }
  if (name == "axes") {
    if (auto* axes = std::get_if<std::vector<int64_t>>(&attribute->value)) {
      for (int64_t& axis : *axes) axis = NormalAxis(axis, *rank);
      std::sort(axes->begin(), axes->end());
    }
  }
  return attribute;
}

std::optional<Attribute> Find(const Node& node, std::string_view name) {
  const Attribute* attribute = node.attribute(name);
  if (attribute == nullptr) return std::nullopt;
  return *attribute;
}

std::string NumberText(int64_t number) { return StrCat(number); }
std::string NumberText(float number) { return StrCat(number); }
std::string NumberText(const std::string& text) { return StrCat("\"", text, "\""); }

// Numbers and strings as they are, what is larger by its kind.
std::string AttributeText(const std::optional<Attribute>& attribute) {
  if (!attribute.has_value()) return "none";
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, float> ||
                      std::is_same_v<T, std::string>) {
          return NumberText(value);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                             std::is_same_v<T, std::vector<float>> ||
                             std::is_same_v<T, std::vector<std::string>>) {
          std::string text;
          for (const auto& item : value) {
            StrAppend(&text, text.empty() ? "[" : ", ", NumberText(item));
          }
          return text.empty() ? "[]" : text + "]";
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return StrCat("a tensor ", DimsToString(value.dims()));
        } else {
          return "something else";
        }
      },
      attribute->value);
}

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) { return NumbersEqual(x, y); });
}

}  // namespace

bool SameAttribute(const Attribute& a, const Attribute& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const auto* x = std::get_if<float>(&a.value)) {
    return NumbersEqual(*x, std::get<float>(b.value));
  }
  if (const auto* x = std::get_if<std::vector<float>>(&a.value)) {
    return SameFloats(*x, std::get<std::vector<float>>(b.value));
  }
  if (const auto* x = std::get_if<Tensor>(&a.value)) {
    return ConstantsEqual(*x, std::get<Tensor>(b.value));
  }
  if (const auto* x = std::get_if<int64_t>(&a.value)) return *x == std::get<int64_t>(b.value);
  if (const auto* x = std::get_if<std::string>(&a.value)) {
    return *x == std::get<std::string>(b.value);
  }
  if (const auto* x = std::get_if<std::vector<int64_t>>(&a.value)) {
    return *x == std::get<std::vector<int64_t>>(b.value);
  }
  if (const auto* x = std::get_if<std::vector<std::string>>(&a.value)) {
    return *x == std::get<std::vector<std::string>>(b.value);
  }
  return false;
}

bool HaveSameAttributes(const Node& a, const Node& b) {
  if (a.attributes().size() != b.attributes().size()) return false;
  return std::all_of(a.attributes().begin(), a.attributes().end(), [&](const auto& entry) {
    const Attribute* other = b.attribute(entry.first);
    return other && SameAttribute(*other, entry.second);
  });
}

absl::Status MatchAttributes(const Node& pattern, const Node& graph, const OpsetImports& opsets,
                             std::vector<std::pair<std::string, Attribute>>& bindings) {
  const OpDef* op = FindOpDef(graph, opsets);
  const auto effective = [&](const Node& node, std::string_view name) {
    std::optional<Attribute> attribute = Find(node, name);
    if (!attribute.has_value() && op != nullptr) attribute = DefaultAttribute(*op, name);
    return Canonical(std::move(attribute), name, graph);
  };
  const auto differs = [&](std::string_view name, const std::string& wanted) {
    return absl::NotFoundError(StrCat(graph.Description(), ": attribute \"", name, "\": expected ",
                                      wanted, ", got ", AttributeText(effective(graph, name))));
  };
  for (const auto& [name, attribute] : pattern.attributes()) {
    const std::optional<Attribute> theirs = effective(graph, name);
    if (const auto* reference = std::get_if<AttributeRef>(&attribute.value)) {
      if (!theirs.has_value()) return differs(name, "a value");
      bindings.emplace_back(reference->name, *theirs);
      continue;
    }
    const std::optional<Attribute> ours = effective(pattern, name);
    if (!theirs.has_value() || !SameAttribute(*ours, *theirs)) {
      return differs(name, AttributeText(ours));
    }
  }
  for (const auto& [name, attribute] : graph.attributes()) {
    if (pattern.attribute(name) != nullptr) continue;
    const std::optional<Attribute> ours = effective(pattern, name);
    const std::optional<Attribute> theirs = effective(graph, name);
    if (!ours.has_value() || !SameAttribute(*ours, *theirs)) {
      return differs(name, AttributeText(ours));
    }
  }
  return absl::OkStatus();
}

bool IsCommutative(const Node& node) {
  static constexpr std::array<std::string_view, 12> kOps = {
      "Add", "Mul",   "And", "Or",         "Xor",       "Max",
      "Min", "Equal", "Sum", "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
  return node.domain().empty() && std::find(kOps.begin(), kOps.end(), node.op_type()) != kOps.end();
}

std::string_view MirroredType(std::string_view op_type) {
  if (op_type == "Less") return "Greater";
  if (op_type == "Greater") return "Less";
  if (op_type == "LessOrEqual") return "GreaterOrEqual";
  if (op_type == "GreaterOrEqual") return "LessOrEqual";
  return "";
}

absl::StatusOr<Attribute> AttributeFromConstant(const Node& pattern_constant,
                                                const Tensor& tensor) {
  const std::string& kind = pattern_constant.attributes().front().first;
  if (kind == "value") return MakeAttribute(tensor);
  const std::optional<std::vector<double>> numbers = Numbers(tensor);
  if (!numbers.has_value()) return absl::NotFoundError("expected a small constant of numbers");
  const bool integers = kind == "value_int" || kind == "value_ints";
  if (integers == IsFloatingPoint(tensor.dtype())) {
    return absl::NotFoundError(
        StrCat("expected a constant for ", kind, ", got type ", DataTypeName(tensor.dtype())));
  }
  const bool list = kind == "value_ints" || kind == "value_floats";
  if (!list && numbers->size() != 1) {
    return absl::NotFoundError(
        StrCat("expected one element, got shape ", DimsToString(tensor.dims())));
  }
  if (integers) {
    // A double does not hold all of them.
    PF_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, IntegerValues(tensor));
    return list ? MakeAttribute(ints) : MakeAttribute(ints.front());
  }
  if (list) return MakeAttribute(std::vector<float>(numbers->begin(), numbers->end()));
  return MakeAttribute(static_cast<float>(numbers->front()));
}

}  // namespace pagefuse
