// SPDX-License-Identifier: Apache-2.0
// Replaces Einsum by products and sums: operands are transposed to the order of the result, summed
// labels are the inner axis of a MatMul, and where no label belongs to one operand alone,
// elementwise products are summed.
#include <algorithm>
#include <string>

#include "absl/strings/str_split.h"

#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

// Labels for the axes of "...", from the last one.
std::string Written(const std::string& term, int rank) {
  const size_t dots = term.find("...");
  if (dots == std::string::npos) return term;
  const int more = rank - static_cast<int>(term.size() - 3);
  std::string labels;
  for (int i = 0; i < more; ++i) labels += static_cast<char>('0' + more - 1 - i);
  return term.substr(0, dots) + labels + term.substr(dots + 3);
}

bool HasLabelTwice(std::string term) {
  std::ranges::sort(term);
  return std::ranges::adjacent_find(term) != term.end();
}

std::optional<Equation> ReadEquation(const Node& node) {
  std::string text = StringOr(node, "equation", "");
  std::erase(text, ' ');
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return std::nullopt;
  Equation equation = {absl::StrSplit(sides[0], ','), sides[1]};
  if (static_cast<int>(equation.terms.size()) != node.num_inputs()) return std::nullopt;
  const Shape* result = ShapeOf(node.output(0));
  if (!result) return std::nullopt;
  equation.result = Written(equation.result, result->rank());
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Shape* shape = ShapeOf(node.input(i));
    if (!shape) return std::nullopt;
    std::string& term = equation.terms[i];
    term = Written(term, shape->rank());
    if (static_cast<int>(term.size()) != shape->rank() || HasLabelTwice(term)) return std::nullopt;
  }
  const bool whole = static_cast<int>(equation.result.size()) == result->rank();
  return whole && !HasLabelTwice(equation.result) ? std::optional(equation) : std::nullopt;
}

bool Has(const std::string& term, char label) { return term.find(label) != std::string::npos; }

class EinsumWriter {
 public:
  EinsumWriter(Node& node, Peephole& peephole) : node_(node), peephole_(peephole) {}

  // The value, whose axes have the labels of `from`, with those of `to` in their order; labels that
  // it has not get an axis of length 1.
  Value* Aligned(Value* value, std::string from, const std::string& to) {
    std::string own;
    std::vector<int64_t> missing;
    for (size_t place = 0; place < to.size(); ++place) {
      if (Has(from, to[place])) {
        own += to[place];
      } else {
        missing.push_back(static_cast<int64_t>(place));
      }
    }
    if (own != from) {
      std::vector<int64_t> perm;
      for (char label : own) perm.push_back(static_cast<int64_t>(from.find(label)));
      value = peephole_.AddNode(node_, "Transpose", {value}, {{"perm", perm}});
    }
    if (missing.empty()) return value;
    return peephole_.AddNode(node_, "Unsqueeze", {value, peephole_.Ints("axes", missing)});
  }

  Value* Sum(Value* value, const std::string& labels, const std::string& summed) {
    std::vector<int64_t> axes;
    for (char label : summed) axes.push_back(static_cast<int64_t>(labels.find(label)));
    return peephole_.AddNode(node_, "ReduceSum", {value, peephole_.Ints("axes", axes)},
                             {{"keepdims", 0}});
  }

  bool Finish(Value* value, const std::string& labels, const std::string& result) {
    return peephole_.Replace(node_, Aligned(value, labels, result));
  }

 private:
  Node& node_;
  Peephole& peephole_;
};

bool WriteSum(Node& node, Peephole& peephole, const Equation& equation) {
  const std::string& term = equation.terms[0];
  std::string kept, summed;
  for (char label : term) (Has(equation.result, label) ? kept : summed) += label;
  if (kept.size() != equation.result.size()) return false;
  EinsumWriter writer(node, peephole);
  Value* value = summed.empty() ? node.input(0) : writer.Sum(node.input(0), term, summed);
  return writer.Finish(value, kept, equation.result);
}

// Which operands a label is of, and whether it is summed.
struct Labels {
  std::string batch, left, right, summed;
};

std::optional<Labels> Sorted(const Equation& equation) {
  const std::string &a = equation.terms[0], &b = equation.terms[1];
  Labels labels;
  for (char label : equation.result) {
    const bool left = Has(a, label), right = Has(b, label);
    if (!left && !right) return std::nullopt;
    (left && right ? labels.batch : left ? labels.left : labels.right) += label;
  }
  for (char label : a) {
    if (Has(equation.result, label)) continue;
    if (!Has(b, label)) return std::nullopt;
    labels.summed += label;
  }
  for (char label : b) {
    if (!Has(equation.result, label) && !Has(a, label)) return std::nullopt;
  }
  return labels;
}

// No axis of length 1 stands for a longer one.
bool LengthsAgree(const Node& node, const Equation& equation, const std::string& labels) {
  return std::ranges::all_of(labels, [&](char label) {
    const auto dim = [&](int i) {
      return (*ShapeOf(node.input(i)))[static_cast<int>(equation.terms[i].find(label))];
    };
    return ProvablyEqual(dim(0), dim(1));
  });
}

bool WriteProduct(Node& node, Peephole& peephole, const Equation& equation) {
  auto labels = Sorted(equation);
  if (!labels || !LengthsAgree(node, equation, labels->batch + labels->summed)) return false;
  EinsumWriter writer(node, peephole);
  const bool elementwise =
      labels->summed.empty() || (labels->left.empty() && labels->right.empty());
  if (elementwise) {
    // As an operand that has all labels lies.
    std::string all = equation.result + labels->summed;
    for (const std::string& term : equation.terms) {
      if (term.size() == all.size()) all = term;
    }
    Value* left = writer.Aligned(node.input(0), equation.terms[0], all);
    Value* right = writer.Aligned(node.input(1), equation.terms[1], all);
    Value* product = peephole.AddNode(node, "Mul", {left, right});
    if (!labels->summed.empty()) product = writer.Sum(product, all, labels->summed);
    std::erase_if(all, [&](char label) { return Has(labels->summed, label); });
    return writer.Finish(product, all, equation.result);
  }
  if (labels->summed.size() != 1 || !IsFloatingPoint(node.output(0)->dtype())) return false;
  // The last label of each side makes the matrix; the others are axes that the other side repeats.
  std::string batch;
  const std::string row = labels->left.empty() ? "" : labels->left.substr(labels->left.size() - 1);
  const std::string column =
      labels->right.empty() ? "" : labels->right.substr(labels->right.size() - 1);
  for (char label : equation.result) {
    if (std::string(1, label) != row && std::string(1, label) != column) batch += label;
  }
  // A label that no operand has stands for an axis of length 1.
  const std::string rows = row.empty() ? "<" : row, columns = column.empty() ? ">" : column;
  Value* left = writer.Aligned(node.input(0), equation.terms[0], batch + rows + labels->summed);
  Value* right = writer.Aligned(node.input(1), equation.terms[1], batch + labels->summed + columns);
  Value* product = peephole.AddNode(node, "MatMul", {left, right});
  std::vector<int64_t> ones;
  const auto last = static_cast<int64_t>(batch.size());
  if (row.empty()) ones.push_back(last);
  if (column.empty()) ones.push_back(last + 1);
  if (!ones.empty())
    product = peephole.AddNode(node, "Squeeze", {product, peephole.Ints("axes", ones)});
  return writer.Finish(product, batch + row + column, equation.result);
}

}  // namespace

bool EinsumToProduct(Node& node, Peephole& peephole) {
  const auto equation = ReadEquation(node);
  if (!equation) return false;
  if (node.num_inputs() == 1) return WriteSum(node, peephole, *equation);
  return node.num_inputs() == 2 && WriteProduct(node, peephole, *equation);
}

}  // namespace pagefuse
