// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/joined_products.h"

#include <algorithm>
#include <string>
#include <vector>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// A product that nothing but the sum reads, with the axis that each operand is summed along.
struct Summed {
  Node* node = nullptr;
  int axes[2] = {};
};

// The axis of an operand that runs with `along` alone; -1 if none does.
int AxisAlong(const Element& operand, const IndexSymbolPtr& along) {
  for (size_t axis = 0; axis < operand.at.size(); ++axis) {
    if (operand.at[axis].Key() == along->key) return static_cast<int>(axis);
  }
  return -1;
}

std::optional<Summed> SummedProduct(Value* value) {
  Node* node = value->producer();
  const bool product = node && (node->Is("MatMul") || node->Is("Einsum"));
  if (!product || node->num_inputs() != 2 || value->uses().size() != 1 || value->is_output()) {
    return std::nullopt;
  }
  Summed summed{.node = node};
  if (node->Is("MatMul")) {
    for (int side : {0, 1}) {
      const auto& shape = node->input(side)->shape();
      if (!shape || shape->rank() < 2) return std::nullopt;
      summed.axes[side] = shape->rank() - 1 - side;
    }
    return summed;
  }
  // One label is in both terms and not in the result.
  const std::string equation = StringOr(*node, "equation", "");
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos) return std::nullopt;
  const std::string terms[] = {equation.substr(0, comma),
                               equation.substr(comma + 1, arrow - comma - 1)};
  const std::string result = equation.substr(arrow + 2);
  int found = 0;
  for (size_t place = 0; place < terms[0].size(); ++place) {
    const char label = terms[0][place];
    const size_t other = terms[1].find(label);
    if (result.find(label) != std::string::npos) continue;
    if (other == std::string::npos || ++found > 1) return std::nullopt;
    summed.axes[0] = static_cast<int>(place);
    summed.axes[1] = static_cast<int>(other);
  }
  return found == 1 ? std::optional(summed) : std::nullopt;
}

// What the equation says but for the name of the label that is summed.
std::string Pattern(const Summed& product) {
  std::string equation = StringOr(*product.node, "equation", "");
  if (equation.empty()) return equation;
  const char label = equation[product.axes[0]];
  std::replace(equation.begin(), equation.end(), label, '.');
  return equation;
}

// Elements of one operand of both products, followed to one tensor: the second's lie right behind
// those of the first along its axis.
bool FollowEachOther(IndexingAnalysis& reader, Value* first, int axis, Value* second) {
  auto a = reader.Whole(first);
  if (!a.ok() || second->shape()->rank() != first->shape()->rank()) return false;
  const Dim length = (*first->shape())[axis];
  const IndexSymbolPtr along = a->at[axis].symbol();
  if (!along || !length.known()) return false;
  Element b{second, a->at};
  const Element from = reader.Source(*a), behind = reader.Source(b);
  if (from.value != behind.value || from.at.size() != behind.at.size()) return false;
  const int place = AxisAlong(from, along);
  if (place < 0) return false;
  for (size_t i = 0; i < from.at.size(); ++i) {
    const IndexExpr distance = behind.at[i] - from.at[i];
    const IndexExpr expected = static_cast<int>(i) == place ? IndexExpr(length) : IndexExpr();
    if (distance.Key() != expected.Key()) return false;
  }
  return true;
}

}  // namespace

bool JoinProducts(Graph& graph, Node* add, const SymbolicContents& contents) {
  if (!add->Is("Add")) return false;
  for (const int first : {0, 1}) {
    const auto a = SummedProduct(add->input(first)), b = SummedProduct(add->input(1 - first));
    if (!a || !b || Pattern(*a) != Pattern(*b) || a->node->op_type() != b->node->op_type()) {
      return false;
    }
    IndexingAnalysis reader(contents);
    Value* rows = a->node->input(1);
    if (!rows->shape() || !b->node->input(1)->shape() || a->axes[0] != b->axes[0] ||
        a->axes[1] != b->axes[1] || !FollowEachOther(reader, rows, a->axes[1], b->node->input(1))) {
      continue;
    }
    GraphBuilder builder(graph, add, add->output(0)->name());
    std::vector<Value*> operands;
    for (const int side : {0, 1}) {
      operands.push_back(builder.Add("Concat", {a->node->input(side), b->node->input(side)},
                                     {{"axis", a->axes[side]}}));
    }
    Node* joined = builder.AddNode("", a->node->op_type(), operands, 1);
    if (const Attribute* equation = a->node->attribute("equation")) {
      joined->SetAttribute("equation", *equation);
    }
    ReplaceNode(add, joined->output(0));
    return true;
  }
  return false;
}

}  // namespace pagefuse
