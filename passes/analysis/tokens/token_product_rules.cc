// SPDX-License-Identifier: Apache-2.0
// Rules for matrix products: tokens may be rows (or columns) of one side, and are never summed
// over.
#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/tokens/token_rules.h"

namespace pagefuse {
namespace {

// Axes of operand `i` as axes of the product: `sum` is summed over, `kept` (-1: none) becomes
// `kept_out`, those before the last two are batches and line up at the end.
absl::StatusOr<TokenAxes> OperandAxes(const RowsNode& node, int i, int sum, int kept,
                                      int kept_out) {
  PF_RETURN_IF_ERROR(node.CheckApart(i, sum));
  const int batches_out = node.output().rank() - 2;
  const int batches = node.rank(i) - 2;
  TokenAxes axes = node.axes(i);
  for (int* axis : {&axes.batch, &axes.token}) {
    if (*axis < 0) continue;
    *axis = *axis == kept ? kept_out : *axis + batches_out - batches;
  }
  return axes;
}

struct Transposed {
  bool left = false;
  bool right = false;
};

absl::StatusOr<TokenAxes> ProductOf(const RowsNode& node, Transposed transposed) {
  if (node.rank(0) < 2 || node.rank(1) < 2) {
    // A vector is summed over whole.
    for (int i : {0, 1}) {
      if (node.rank(i) < 2 && !node.fixed(i))
        return node.Mixes("a vector that is summed over depends on tokens");
    }
    if (node.rank(1) >= 2 || node.fixed(0))
      return node.Mixes("it multiplies by a vector from the left");
    PF_RETURN_IF_ERROR(node.CheckApart(0, node.rank(0) - 1));
    return node.axes(0);
  }
  const int out = node.output().rank();
  const int a = node.rank(0);
  const int b = node.rank(1);
  PF_ASSIGN_OR_RETURN(TokenAxes left, OperandAxes(node, 0, transposed.left ? a - 2 : a - 1,
                                                  transposed.left ? a - 1 : a - 2, out - 2));
  PF_ASSIGN_OR_RETURN(TokenAxes right, OperandAxes(node, 1, transposed.right ? b - 1 : b - 2,
                                                   transposed.right ? b - 2 : b - 1, out - 1));
  PF_ASSIGN_OR_RETURN(TokenAxes joined, node.Joined(left, right));
  // Batches of a fixed side are those of experts or heads, not of tokens.
  for (int i : {0, 1}) {
    const int shift = out - node.rank(i);
    for (int axis : {joined.batch, joined.token}) {
      const int own = axis - shift;
      if (axis < 0 || axis >= out - 2 || own < 0 || node.axes(i).contains(own)) continue;
      if (node.shape(i)[own].constant() == 1) continue;
      return node.Mixes(StrCat("\"", node.node().input(i)->name(), "\" ", node.shape(i).ToString(),
                               " has matrices of its own along axis ", own,
                               ", which runs over tokens"));
    }
  }
  return joined;
}

absl::StatusOr<TokenAxes> MatMulRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(2));
  return ProductOf(node, {});
}

absl::StatusOr<TokenAxes> FusedMatMulRule(const RowsNode& node) {
  if (node.Int("transBatchA", 0) != 0 || node.Int("transBatchB", 0) != 0) {
    return node.Mixes("it transposes batches");
  }
  return ProductOf(node, {node.Int("transA", 0) != 0, node.Int("transB", 0) != 0});
}

absl::StatusOr<TokenAxes> GemmRule(const RowsNode& node) {
  PF_ASSIGN_OR_RETURN(TokenAxes axes,
                      ProductOf(node, {node.Int("transA", 0) != 0, node.Int("transB", 0) != 0}));
  if (!node.has(2)) return axes;
  PF_ASSIGN_OR_RETURN(TokenAxes bias, node.Broadcast(2, 3));
  PF_ASSIGN_OR_RETURN(axes, node.Joined(axes, bias));
  const int shift = 2 - node.rank(2);
  for (int axis : {axes.batch, axes.token}) {
    const int own = axis - shift;
    if (axis < 0 || own < 0 || node.axes(2).contains(own)) continue;
    if (node.shape(2)[own].constant() != 1) return node.Mixes("its bias differs by token");
  }
  return axes;
}

// Rows times fixed matrices that are stored in some form of their own.
absl::StatusOr<TokenAxes> RowsTimesFixedRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  PF_RETURN_IF_ERROR(node.CheckApart(0, node.rank(0) - 1));
  return node.axes(0);
}

absl::StatusOr<TokenAxes> LinearRule(const RowsNode& node) {
  if (node.rank(1) < 3) return RowsTimesFixedRule(node);
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  return ProductOf(node, {.right = true});
}

// Row t / repeat of x times the matrix that expert_ids[t] names.
absl::StatusOr<TokenAxes> GroupedRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(2));
  PF_RETURN_IF_ERROR(node.CheckApart(0, 1));
  TokenAxes rows = node.axes(0);
  if (rows.token >= 0) rows.per_token *= node.Int("repeat", 1);
  if (rows != node.axes(1)) return node.Mixes("rows and experts are of different tokens");
  return rows;
}

// com.microsoft.MoE and QMoE: rows [B, S, H] or [T, H] and their router's probabilities [T, E].
absl::StatusOr<TokenAxes> MixtureRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(2));
  for (int i : {0, 1}) PF_RETURN_IF_ERROR(node.CheckApart(i, node.rank(i) - 1));
  const Shape routed{node.shape(1)[0], Dim(1)};
  Shape rows = node.shape(0);
  rows.dims().back() = 1;
  const auto expected = AxesOfView(rows, routed, node.axes(0), node.sources().sequence);
  if (!expected || *expected != node.axes(1)) {
    return node.Mixes("rows and router are of different tokens");
  }
  return node.axes(0);
}

// Letters of an operand by axis; empty if the equation uses what is not read here.
std::vector<std::string> Letters(std::string equation) {
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find("...") != std::string::npos) return {};
  std::vector<std::string> terms;
  std::string inputs = equation.substr(0, arrow);
  for (size_t start = 0; start <= inputs.size();) {
    const size_t comma = std::min(inputs.find(',', start), inputs.size());
    terms.push_back(inputs.substr(start, comma - start));
    start = comma + 1;
  }
  terms.push_back(equation.substr(arrow + 2));
  return terms;
}

// A letter of an axis over tokens stays in the output, and no fixed operand has it.
absl::StatusOr<TokenAxes> EinsumRule(const RowsNode& node) {
  const auto equation = node.node().StringAttribute("equation", "");
  const std::vector<std::string> terms = Letters(equation.ok() ? *equation : "");
  if (static_cast<int>(terms.size()) != node.num_inputs() + 1) {
    return node.Mixes("its equation is not read");
  }
  const std::string& out = terms.back();
  TokenAxes joined;
  for (int i = 0; i < node.num_inputs(); ++i) {
    TokenAxes axes = node.axes(i);
    for (int* axis : {&axes.batch, &axes.token}) {
      if (*axis < 0) continue;
      const size_t found = out.find(terms[i][*axis]);
      if (found == std::string::npos) return node.Mixes("it sums over tokens");
      *axis = static_cast<int>(found);
    }
    PF_ASSIGN_OR_RETURN(joined, node.Joined(joined, axes));
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    for (int axis : {joined.batch, joined.token}) {
      if (axis < 0) continue;
      const size_t own = terms[i].find(out[axis]);
      if (own == std::string::npos || node.axes(i).contains(static_cast<int>(own)) ||
          node.shape(i)[static_cast<int>(own)].constant() == 1) {
        continue;
      }
      return node.Mixes(StrCat("\"", node.node().input(i)->name(),
                               "\" has numbers of its own along axis ", own,
                               ", which runs over tokens"));
    }
  }
  return joined;
}

}  // namespace

const TokenRules& ProductRules() {
  static const auto& rules = *new TokenRules{
      {".MatMul", MatMulRule},
      {".MatMulInteger", MatMulRule},
      {".Gemm", GemmRule},
      {".Einsum", EinsumRule},
      {"com.microsoft.FusedMatMul", FusedMatMulRule},
      {"com.microsoft.MatMulNBits", RowsTimesFixedRule},
      {"com.microsoft.MoE", MixtureRule},
      {"com.microsoft.QMoE", MixtureRule},
      {"pagefuse.GatedLinear", RowsTimesFixedRule},
      {"pagefuse.GroupedMatMul", GroupedRule},
      {"pagefuse.HyperConnectionMix", RowsTimesFixedRule},
      {"pagefuse.Linear", LinearRule},
      {"pagefuse.SplitLinear", RowsTimesFixedRule},
  };
  return rules;
}

}  // namespace pagefuse
