// Reads bool tensors, and floats that hide scores, as conjunctions of inequalities.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

Conditions Both(Conditions a, const Conditions& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// All of them, as one: the least. Nothing is asked: 0.
IndexExpr AllOf(const Conditions& conditions) {
  if (conditions.empty()) return IndexExpr(0);
  IndexExpr least = conditions.front();
  for (size_t i = 1; i < conditions.size(); ++i) least = MinOf(least, conditions[i]);
  return least;
}

// At an element of Trilu: where what it was made of is kept.
IndexExpr KeptByTrilu(IndexingAnalysis& reader, const Element& element) {
  const Node& node = *element.producer();
  const IndexExpr row = element.at[element.at.size() - 2], column = element.at.back();
  const bool shifted = node.num_inputs() > 1 && node.input(1) != nullptr;
  const IndexExpr k = shifted ? reader.ReadIndex({node.input(1), {}}) : IndexExpr();
  const IndexExpr above = column - row - k;
  return IntOr(node, "upper", 1) != 0 ? above : above.Times(Dim(-1));
}

// A bool as a number.
bool IsTruth(const Element& element) {
  return element.From("Cast") && element.producer()->input(0)->dtype() == DataType::kBool;
}

// 1 where all of some conditions hold, compared with 0 or 1: the conditions, or that one fails.
Conditions Unwrapped(const IndexExpr& condition) {
  const IndexSymbolPtr all = (condition + IndexExpr(1)).symbol();
  if (all && all->kind == IndexSymbol::Kind::kTruth) return all->args;
  return Conditions{condition};
}

// not (x >= 0) is -x - 1 >= 0.
IndexExpr Negated(const IndexExpr& condition) { return condition.Times(Dim(-1)) - IndexExpr(1); }

// One of them fails.
Conditions NegationOf(const Conditions& conditions) {
  if (conditions.empty()) return Conditions{IndexExpr(-1)};
  IndexExpr most = Negated(conditions.front());
  for (size_t i = 1; i < conditions.size(); ++i) most = MaxOf(most, Negated(conditions[i]));
  return Conditions{most};
}

// (visible - 1) * largest, (1 - visible) * lowest, hidden * lowest; nullopt for another product.
std::optional<absl::StatusOr<Conditions>> HidingOfProduct(IndexingAnalysis& reader,
                                                          const Element& product) {
  for (int side : {0, 1}) {
    const auto factor = reader.Number(reader.Operand(product, side));
    const Element less = reader.Operand(product, 1 - side);
    if (!factor || !reader.Hides(-*factor)) continue;
    const bool one_less = (less.From("Sub") && reader.Number(reader.Operand(less, 1)) == 1.0) ||
                          (less.From("Add") && reader.Number(reader.Operand(less, 1)) == -1.0);
    if (one_less) return reader.ReadConditions(reader.Operand(less, 0));
  }
  for (int side : {0, 1}) {
    const auto factor = reader.Number(reader.Operand(product, side));
    const Element hidden = reader.Operand(product, 1 - side);
    if (!factor || !reader.Hides(*factor)) continue;
    if (hidden.From("Sub") && reader.Number(reader.Operand(hidden, 0)).value_or(0) == 1) {
      return reader.ReadConditions(reader.Operand(hidden, 1));
    }
    return reader.ReadNegation(hidden);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Conditions> IndexingAnalysis::ReadConditions(const Element& unresolved) {
  const Element element = Source(unresolved);
  if (const auto number = Number(element)) {
    if (*number != 0) return Conditions{};
    return Conditions{IndexExpr(-1)};
  }
  const Node* node = element.producer();
  // What is joined of conditions is one of its own where it is not known of which part.
  if (node == nullptr || node->Is("Concat")) {
    return Conditions{IndexExpr::Of(MakeLoad(element.value, element.at)) - IndexExpr(1)};
  }
  if (node->Is("And") || node->Is("Mul") || node->Is("BitwiseAnd") || node->Is("Min")) {
    if (node->num_inputs() != 2)
      return MatchFailure(*element.value, " joins more than two conditions");
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
    return Both(a, b);
  }
  // a or b is max(a, b) >= 0.
  if (node->Is("Or") || (node->Is("Max") && node->num_inputs() == 2)) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
    return Conditions{MaxOf(AllOf(a), AllOf(b))};
  }
  // x xor true, 1 - x.
  if (node->Is("Xor") || (node->Is("Sub") && IsTruth(Operand(element, 1)))) {
    for (int side : {0, 1}) {
      if (node->Is("Sub") && side == 1) break;
      if (Number(Operand(element, side)) == 1.0) return ReadNegation(Operand(element, 1 - side));
    }
  }
  if (node->Is("Trilu") && element.at.size() >= 2) {
    const IndexExpr kept = KeptByTrilu(*this, element);
    PF_ASSIGN_OR_RETURN(const Conditions inside, ReadConditions(Operand(element, 0)));
    return Both({kept}, inside);
  }
  // Some of them is true: at least one is counted.
  if (node->Is("ReduceMax")) {
    if (const IndexSymbolPtr count = ReadCounted(element)) {
      return Conditions{IndexExpr::Of(count) - IndexExpr(1)};
    }
  }
  if (node->Is("Not")) return ReadNegation(Operand(element, 0));
  if (node->Is("Cast")) return ReadTruthOf(Operand(element, 0));
  if (node->Is("Where")) {
    const auto chosen = Number(Operand(element, 1));
    const auto other = Number(Operand(element, 2));
    if (chosen && other && *chosen != 0 && *other == 0) return ReadConditions(Operand(element, 0));
    // c and x, or what else numpy users write for it.
    if (other && *other == 0) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
      return Both(a, b);
    }
  }
  return ReadComparison(element);
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadTruthOf(const Element& element) {
  auto conditions = ReadConditions(element);
  const DataType type = element.value->dtype();
  if (conditions.ok() || (type != DataType::kInt64 && type != DataType::kInt32)) return conditions;
  // What is not negative is true where it is above 0.
  const IndexExpr number = ReadIndex(element);
  if (!ProvablyNotNegative(number.Lower())) return conditions;
  return Conditions{number - IndexExpr(1)};
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadNegation(const Element& unresolved) {
  const Element element = Source(unresolved);
  if (element.From("Not")) return ReadConditions(Operand(element, 0));
  // not (a or b) is not a and not b.
  if (element.From("Or")) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadNegation(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadNegation(Operand(element, 1)));
    return Both(a, b);
  }
  PF_ASSIGN_OR_RETURN(const Conditions conditions, ReadConditions(element));
  return NegationOf(conditions);
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadComparison(const Element& element) {
  const Node& node = *element.producer();
  const bool less = node.Is("Less");
  const bool greater = node.Is("Greater");
  // A truth as a number, against what lies between false and true.
  const auto bound = Number(Operand(element, 1));
  const Element truth = Operand(element, 0);
  if ((greater || less) && bound && *bound > 0 && *bound < 1 && IsTruth(truth)) {
    return greater ? ReadConditions(truth) : ReadNegation(truth);
  }
  if (less || node.Is("LessOrEqual")) {
    const IndexExpr gap = OperandIndex(element, 1) - OperandIndex(element, 0);
    return Unwrapped(less ? gap - IndexExpr(1) : gap);
  }
  if (greater || node.Is("GreaterOrEqual")) {
    const IndexExpr gap = OperandIndex(element, 0) - OperandIndex(element, 1);
    return Unwrapped(greater ? gap - IndexExpr(1) : gap);
  }
  if (node.Is("Equal")) {
    const Element first = Operand(element, 0);
    if (first.value->dtype() == DataType::kBool) {
      if (bound == 0.0) return ReadNegation(first);
      if (bound == 1.0) return ReadConditions(first);
    }
    if (first.From("Sign") && bound && std::abs(*bound) == 1) {
      return Conditions{OperandIndex(first, 0).Times(Dim(static_cast<int64_t>(*bound))) -
                        IndexExpr(1)};
    }
    const IndexExpr form = ReadIndex(first);
    const IndexSymbolPtr holds = form.symbol();
    if (holds && holds->kind == IndexSymbol::Kind::kTruth && (bound == 0.0 || bound == 1.0)) {
      return bound == 1.0 ? holds->args : NegationOf(holds->args);
    }
    const IndexExpr gap = form - OperandIndex(element, 1);
    return Conditions{gap, gap.Times(Dim(-1))};
  }
  return MatchFailure(*element.value, " (", node.op_type(), ") is no range of indices");
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadHiding(const Element& unresolved) {
  const Element element = Source(unresolved);
  if (const auto number = Number(element)) {
    if (*number == 0) return Conditions{};
    return MatchFailure(*element.value, " adds a number to every score");
  }
  const Node* node = element.producer();
  if (node == nullptr) return MatchFailure(*element.value, " is a mask that nothing explains");
  if (node->Is("Cast")) return ReadHiding(Operand(element, 0));
  if (node->Is("Add") || node->Is("Min")) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadHiding(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 1)));
    return Both(a, b);
  }
  if (node->Is("Where")) {
    const auto chosen = Number(Operand(element, 1));
    const auto other = Number(Operand(element, 2));
    if (other && Hides(*other)) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 1)));
      return Both(a, b);
    }
    if (chosen && Hides(*chosen)) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadNegation(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 2)));
      return Both(a, b);
    }
    return MatchFailure(*element.value, " chooses between numbers that hide nothing");
  }
  // Nothing above or below a diagonal, and what hides all on its other side.
  if (node->Is("Trilu") && element.at.size() >= 2) {
    const auto low = Number(Operand(element, 0));
    if (low && Hides(*low)) return Conditions{Negated(KeptByTrilu(*this, element))};
  }
  // log 1 = 0, log 0 is the lowest.
  if (node->Is("Log") && Operand(element, 0).From("Cast")) {
    const Element seen = Operand(Operand(element, 0), 0);
    if (seen.value->dtype() == DataType::kBool) return ReadConditions(seen);
  }
  if (node->Is("Mul")) {
    if (auto hiding = HidingOfProduct(*this, element)) return *std::move(hiding);
  }
  return MatchFailure(*element.value, " (", node->op_type(), ") is not understood as a mask");
}

}  // namespace pagefuse
