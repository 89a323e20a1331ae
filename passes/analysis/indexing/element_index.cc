// SPDX-License-Identifier: Apache-2.0
// Reads integers as index forms.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/passes/analysis/indexing/constant_forms.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

// True if the conditions hold only for a negative x of which `form` has a quotient: exporters take
// one off where that rounds to zero and something is left over. Indices are not negative where they
// are divided.
bool CorrectsQuotient(const IndexExpr& form, const Conditions& conditions) {
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbol& quotient = *term.first;
    if (quotient.kind != IndexSymbol::Kind::kDiv) continue;
    const IndexExpr& x = quotient.args[0];
    const IndexExpr rest = DivMod(x, quotient.divisor).second;
    bool not_above = false, left_over = false;
    for (const IndexExpr& condition : conditions) {
      const auto least = (condition + x).number();
      if (least && *least < 0) return true;
      not_above = not_above || least == 0;
      left_over = left_over || (condition - rest).number() == -1;
    }
    // 0 leaves nothing over.
    if (not_above && left_over) return true;
  }
  return false;
}

// x mod a power of two.
bool IsLowBits(const IndexExpr& low, const IndexExpr& x) {
  const IndexSymbolPtr rest = low.symbol();
  const bool of_x = rest && rest->kind == IndexSymbol::Kind::kMod && rest->args[0].Key() == x.Key();
  const auto divisor = of_x ? rest->divisor.constant() : std::nullopt;
  return divisor && (*divisor & (*divisor - 1)) == 0;
}

std::optional<IndexExpr> WholeNumber(std::optional<double> number) {
  constexpr double kMost = 1LL << 53;
  const bool whole = number && std::abs(*number) <= kMost && *number == std::floor(*number);
  return whole ? std::optional(IndexExpr(static_cast<int64_t>(*number))) : std::nullopt;
}

// The last place that a node can find along an axis; nullopt for values that are no such places.
std::optional<Dim> LastPlace(const Value& places) {
  const Node* node = places.producer();
  if (node == nullptr) return std::nullopt;
  if (node->Is("NonZero")) return Dim::Symbol("places");
  const bool of_topk = node->Is("TopK") && places.producer_index() == 1;
  if (!of_topk && !node->Is("ArgMax") && !node->Is("ArgMin")) return std::nullopt;
  const auto& shape = node->input(0)->shape();
  const int64_t axis =
      NormalAxis(IntOr(*node, "axis", of_topk ? -1 : 0), shape ? shape->rank() : 0);
  const bool known = shape && axis >= 0 && axis < shape->rank();
  return known ? (*shape)[static_cast<int>(axis)] - Dim(1) : Dim();
}

// The greatest or the least of numbers that grow by the same from place to place: the last or the
// first. `has_places`: whether an axis of that length has any.
std::optional<IndexExpr> ReadExtreme(IndexingAnalysis& reader, const Element& element,
                                     const std::function<bool(const Dim&)>& has_places) {
  const Node& node = *element.producer();
  const auto reduced = ReducedBy(node, reader.contents());
  if (!reduced || !reduced->length.known() || !has_places(reduced->length)) return std::nullopt;
  const IndexSymbolPtr axis = reader.NewAxis(reduced->length);
  const IndexExpr along = IndexExpr::Of(axis);
  const IndexExpr form = reader.ReadIndex(reduced->At(element, along));
  const auto step = form.Step(along).constant();
  if (!step || form.Mentions(axis->key) != (*step != 0)) return std::nullopt;
  const IndexExpr first = form - along.Times(Dim(*step));
  if (first.Mentions(axis->key)) return std::nullopt;
  reader.Visit(node);
  const bool is_last = node.Is("ReduceMax") == (*step > 0);
  return is_last ? first + IndexExpr((reduced->length - Dim(1)) * Dim(*step)) : first;
}

}  // namespace

std::optional<bool> TruthOf(const Conditions& conditions) {
  const auto holds = [](const IndexExpr& x) { return ProvablyNotNegative(x.Lower()); };
  const auto fails = [](const IndexExpr& x) {
    return ProvablyNotNegative(x.Upper() * Dim(-1) - Dim(1));
  };
  if (std::ranges::all_of(conditions, holds)) return true;
  if (std::ranges::any_of(conditions, fails)) return false;
  return std::nullopt;
}

void IndexingAnalysis::Assume(const Conditions& conditions) {
  for (const IndexExpr& condition : conditions) assumed_.insert(condition.Key());
}

bool IndexingAnalysis::Assumed(const Conditions& conditions) const {
  return std::ranges::all_of(
      conditions, [&](const IndexExpr& condition) { return assumed_.contains(condition.Key()); });
}

IndexExpr IndexingAnalysis::Greater(const IndexExpr& a, const IndexExpr& b) const {
  if (Assumed({a - b})) return a;
  if (Assumed({b - a})) return b;
  // The quotient of what is not negative is not.
  const IndexSymbolPtr quotient = (a - b).symbol();
  if (quotient && quotient->kind == IndexSymbol::Kind::kDiv && Assumed({quotient->args[0]}))
    return a;
  return MaxOf(a, b);
}

bool IndexingAnalysis::ComesOut(DataType type, const IndexExpr& form) const {
  const Dim lower = form.Lower(), upper = form.Upper();
  if (lower.known() && upper.known()) return HoldsExactly(type, lower, upper);
  // What is cast is a place that was found, a mask, of 0 and 1, or no index.
  const IndexSymbolPtr symbol = form.symbol();
  if (symbol && symbol->kind == IndexSymbol::Kind::kLoad) {
    const std::optional<Dim> last = LastPlace(*symbol->tensor);
    return last ? HoldsExactly(type, Dim(0), *last) : type != DataType::kBool;
  }
  switch (type) {
    case DataType::kInt64:
    case DataType::kFloat:
    case DataType::kDouble:
      return true;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kUint64:
      return trust_ == Trust::kExporter;
    default:
      return false;
  }
}

IndexExpr IndexingAnalysis::ReadIndex(const Element& unresolved) {
  const Reading reading(*this);
  // A size that is known needs not be followed.
  const auto known = contents_.find(unresolved.value);
  if (known != contents_.end() && known->second.size() == 1 && known->second[0].known()) {
    return IndexExpr(known->second[0]);
  }
  const Element element = Source(unresolved);
  if (auto constant = ReadConstant(element)) return *constant;
  if (element.producer() != nullptr && !reading.TooLong()) {
    const auto form = ReadArithmetic(element);
    if (form && ComesOut(element.value->dtype(), *form) && form->Length() <= kLongestForm) {
      return *form;
    }
  }
  return IndexExpr::Of(MakeLoad(element.value, element.at));
}

std::optional<IndexExpr> IndexingAnalysis::ReadConstant(const Element& element) {
  if (numbers_.contains(element.value) || element.From("ConstantOfShape")) {
    return WholeNumber(Number(element));
  }
  if (const Tensor* tensor = ConstantOf(element.value)) {
    const auto form = ReadConstantTensor(*tensor, element.at);
    return form ? form : WholeNumber(Number(element));
  }
  const auto dims = KnownDims(element.value, contents_);
  if (!dims) return std::nullopt;
  if (dims->size() == 1) return IndexExpr(dims->front());
  if (element.at.size() != 1) return std::nullopt;
  const auto place = element.at[0].number();
  if (!place || *place < 0 || *place >= static_cast<int64_t>(dims->size())) return std::nullopt;
  return IndexExpr((*dims)[*place]);
}

std::optional<IndexExpr> IndexingAnalysis::ReadCast(const Element& element) {
  const DataType from = element.producer()->input(0)->dtype();
  if (from == DataType::kBool) {
    const auto conditions = ReadConditions(Operand(element, 0));
    if (!conditions.ok()) return std::nullopt;
    const auto truth = Assumed(*conditions) ? true : TruthOf(*conditions);
    return truth ? IndexExpr(*truth ? 1 : 0) : IndexExpr::Of(MakeTruth(*conditions));
  }
  // Whole numbers stay what they are in the floats that exporters count in.
  if (IsFloatingPoint(from) && !IsFloatingPoint(element.value->dtype()) &&
      !Operand(element, 0).From("Floor")) {
    return std::nullopt;
  }
  return OperandIndex(element, 0);
}

std::optional<IndexExpr> IndexingAnalysis::ReadClip(const Element& element) {
  using ports::Clip;
  const Node& node = *element.producer();
  // Bounds of older forms are attributes.
  if (node.attribute("min") || node.attribute("max")) return std::nullopt;
  IndexExpr form = OperandIndex(element, 0);
  if (node.input(Clip::kLow)) form = Greater(form, OperandIndex(element, Clip::kLow));
  if (node.input(Clip::kHigh)) form = MinOf(form, OperandIndex(element, Clip::kHigh));
  return form;
}

std::optional<IndexExpr> IndexingAnalysis::ReadArithmetic(const Element& element) {
  const Node& node = *element.producer();
  if (node.Is("Add")) return OperandIndex(element, 0) + OperandIndex(element, 1);
  if (node.Is("Sub")) {
    const IndexExpr a = OperandIndex(element, 0), b = OperandIndex(element, 1);
    const IndexSymbolPtr truth = b.symbol();
    if (truth && truth->kind == IndexSymbol::Kind::kTruth && CorrectsQuotient(a, truth->args))
      return a;
    return a - b;
  }
  if (node.Is("Neg")) return OperandIndex(element, 0).Times(Dim(-1));
  if (node.Is("Abs")) {
    const IndexExpr x = OperandIndex(element, 0);
    return MaxOf(x, x.Times(Dim(-1)));
  }
  if (node.Is("Mul")) {
    const IndexExpr a = OperandIndex(element, 0);
    const IndexExpr b = OperandIndex(element, 1);
    if (b.is_constant()) return a.Times(b.constant());
    if (a.is_constant()) return b.Times(a.constant());
    return std::nullopt;
  }
  if (node.Is("Cast")) return ReadCast(element);
  if (node.Is("Max") || node.Is("Min")) {
    IndexExpr form = OperandIndex(element, 0);
    for (int i = 1; i < node.num_inputs(); ++i) {
      const IndexExpr other = OperandIndex(element, i);
      form = node.Is("Max") ? Greater(form, other) : MinOf(form, other);
    }
    return form;
  }
  if (node.Is("Clip")) return ReadClip(element);
  if (node.Is("ReduceMax") || node.Is("ReduceMin")) {
    return ReadExtreme(*this, element, [&](const Dim& length) {
      return ProvablyNotNegative(length - Dim(1)) || Assumed({IndexExpr(length - Dim(1))});
    });
  }
  if (node.Is("Relu")) return Greater(OperandIndex(element, 0), IndexExpr(0));
  if (node.Is("Div") || node.Is("Mod") || node.Is("Floor")) return ReadQuotient(element);
  if (node.Is("BitShift") || node.Is("BitwiseAnd")) return ReadBits(element);
  if (node.Is("BitwiseXor")) {
    // Low bits of x from x.
    const IndexExpr x = OperandIndex(element, 0), low = OperandIndex(element, 1);
    return IsLowBits(low, x) ? std::optional(x - low) : std::nullopt;
  }
  if (node.Is("BitwiseOr")) return ReadJoinedBits(element);
  if (node.Is("Where")) return ReadChoice(element);
  if (node.Is("Range")) return ReadRange(element);
  if (node.Is("Concat")) return ReadContinued(element);
  if (node.Is("CumSum")) return ReadRunningSum(element);
  if (node.Is("ReduceSum")) return ReadCount(element);
  return std::nullopt;
}

// A first element, and others behind it that go on as it begins: Concat (x[0] - 1, x) of x = i.
std::optional<IndexExpr> IndexingAnalysis::ReadContinued(const Element& element) {
  const Node& node = *element.producer();
  const auto axis = NormalAxis(IntOr(node, "axis", 0), static_cast<int64_t>(element.at.size()));
  const IndexSymbolPtr along = element.at[axis].symbol();
  const auto& first = node.input(0)->shape();
  if (node.num_inputs() != 2 || !along || !first) return std::nullopt;
  if ((*first)[static_cast<int>(axis)].constant() != 1) return std::nullopt;
  Element head{node.input(0), element.at}, rest{node.input(1), element.at};
  head.at[axis] = IndexExpr(0);
  rest.at[axis] = element.at[axis] - IndexExpr(1);
  const IndexExpr form = ReadIndex(rest);
  const bool goes_on = (ReadAt(form, along, IndexExpr(0)) - ReadIndex(head)).number() == 0;
  return goes_on ? std::optional(form) : std::nullopt;
}

// Indices are not negative where they are divided: Div, which rounds to zero, rounds down.
std::optional<IndexExpr> IndexingAnalysis::ReadQuotient(const Element& element) {
  Element quotient = element;
  const bool floor = element.From("Floor");
  if (floor) {
    Visit(*element.producer());
    quotient = Operand(element, 0);
    if (quotient.From("Mul")) return ReadShare(quotient);
    if (!quotient.From("Div")) return std::nullopt;
  }
  if (!floor && IsFloatingPoint(element.value->dtype())) return std::nullopt;
  const IndexExpr divisor = OperandIndex(quotient, 1);
  const auto number = divisor.number();
  if (!divisor.is_constant() || (number && *number <= 0)) return std::nullopt;
  const IndexExpr x = OperandIndex(quotient, 0);
  if (trust_ == Trust::kNothing && !ProvablyNotNegative(x.Lower())) return std::nullopt;
  const auto [whole, rest] = DivMod(x, divisor.constant());
  return element.From("Mod") ? rest : whole;
}

// x times a number whose inverse is whole, rounded down.
std::optional<IndexExpr> IndexingAnalysis::ReadShare(const Element& product) {
  for (int side : {0, 1}) {
    const auto factor = Number(Operand(product, side));
    const double inverse = factor && *factor > 0 ? 1 / *factor : 0;
    if (inverse < 1 || inverse != std::floor(inverse) || inverse > (1 << 20)) continue;
    // The inverse of another number is rounded, and so is the product.
    if (!std::has_single_bit(static_cast<uint64_t>(inverse))) continue;
    return DivMod(OperandIndex(product, 1 - side), Dim(static_cast<int64_t>(inverse))).first;
  }
  return std::nullopt;
}

std::optional<IndexExpr> IndexingAnalysis::ReadBits(const Element& element) {
  const Node& node = *element.producer();
  IndexExpr x = OperandIndex(element, 0);
  IndexExpr bits = OperandIndex(element, 1);
  if (node.Is("BitwiseAnd") && x.number()) std::swap(x, bits);
  const auto number = bits.number();
  if (!number || *number < 0) return std::nullopt;
  // All but some low bits of 32.
  const int64_t low = (int64_t{1} << 32) - 1 - *number;
  if (node.Is("BitwiseAnd") && element.value->dtype() == DataType::kUint32 && low >= 0 &&
      (low & (low + 1)) == 0) {
    return x - DivMod(x, Dim(low + 1)).second;
  }
  if (*number > 62) return std::nullopt;
  if (node.Is("BitShift")) {
    const Dim factor(int64_t{1} << *number);
    return StringOr(node, "direction", "") == "LEFT" ? x.Times(factor) : DivMod(x, factor).first;
  }
  // Below a power of two.
  if ((*number & (*number + 1)) != 0) return std::nullopt;
  return DivMod(x, Dim(*number + 1)).second;
}

// a | b is a + b where no bit is in both.
std::optional<IndexExpr> IndexingAnalysis::ReadJoinedBits(const Element& element) {
  const IndexExpr a = OperandIndex(element, 0);
  const IndexExpr b = OperandIndex(element, 1);
  const auto above = [](const IndexExpr& high, const IndexExpr& low) {
    const auto most = low.Upper().constant();
    if (!most || !ProvablyNotNegative(low.Lower())) return false;
    int64_t step = 1;
    while (step <= *most) step *= 2;
    return DivMod(high, Dim(step)).second.number() == 0;
  };
  if (above(a, b) || above(b, a)) return a + b;
  return std::nullopt;
}

// Where(x >= 0, x, 0) is Max(x, 0); Where(x < 0, x + size, x) counts negative indices from the end
// as Gather does.
std::optional<IndexExpr> IndexingAnalysis::ReadChoice(const Element& element) {
  const auto conditions = ReadConditions(Operand(element, 0));
  if (!conditions.ok()) return std::nullopt;
  const IndexExpr chosen = OperandIndex(element, 1);
  const IndexExpr other = OperandIndex(element, 2);
  const auto truth = TruthOf(*conditions);
  if (truth == true || Assumed(*conditions) || chosen.Key() == other.Key()) return chosen;
  if (truth == false || CorrectsQuotient(other, *conditions)) return other;
  if (conditions->size() != 1) return std::nullopt;
  const IndexExpr& condition = conditions->front();
  const std::string difference = (chosen - other).Key();
  if (difference == condition.Key()) return MaxOf(chosen, other);
  if (difference == condition.Times(Dim(-1)).Key()) return MinOf(chosen, other);
  // x < 0 is -x - 1 >= 0.
  const bool wraps = trust_ == Trust::kExporter &&
                     (condition + other).Key() == IndexExpr(-1).Key() &&
                     (chosen - other).is_constant();
  if (wraps) return other;
  return std::nullopt;
}

std::optional<IndexExpr> IndexingAnalysis::ReadRange(const Element& element) {
  if (element.at.size() != 1) return std::nullopt;
  const Node& node = *element.producer();
  Visit(*element.producer());
  const IndexExpr step = ReadIndex({node.input(ports::Range::kDelta), {}});
  if (!step.is_constant()) return std::nullopt;
  return ReadIndex({node.input(ports::Range::kStart), {}}) + element.at[0].Times(step.constant());
}

IndexExpr IndexingAnalysis::ReadAt(const IndexExpr& form, const IndexSymbolPtr& axis,
                                   const IndexExpr& place) {
  IndexExpr result(form.constant());
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& symbol = term.first;
    IndexExpr here = IndexExpr::Of(symbol);
    if (symbol->key == axis->key) {
      here = place;
    } else if (here.Mentions(axis->key)) {
      std::vector<IndexExpr> args;
      for (const IndexExpr& arg : symbol->args) args.push_back(ReadAt(arg, axis, place));
      using Kind = IndexSymbol::Kind;
      switch (symbol->kind) {
        case Kind::kLoad:
          here = ReadIndex({symbol->tensor, std::move(args)});
          break;
        case Kind::kDiv:
          here = DivMod(args[0], symbol->divisor).first;
          break;
        case Kind::kMod:
          here = DivMod(args[0], symbol->divisor).second;
          break;
        case Kind::kMax:
          here = MaxOf(args[0], args[1]);
          break;
        case Kind::kMin:
          here = MinOf(args[0], args[1]);
          break;
        default:
          break;
      }
    }
    result = result + here.Times(term.second);
  }
  return result;
}

std::optional<double> IndexingAnalysis::Number(const Element& unresolved) {
  const Nested nested(casts_);
  if (nested.depth() > kMostCasts) return std::nullopt;
  const Element element = Source(unresolved);
  if (const auto taken = numbers_.find(element.value); taken != numbers_.end()) {
    return taken->second;
  }
  if (const Tensor* tensor = ConstantOf(element.value)) {
    // One of NaN is one.
    if (const auto one = ScalarNumber(*tensor)) return one;
    return FilledNumber(*tensor);
  }
  if (element.From("Cast")) {
    const auto number = Number(Operand(element, 0));
    return number ? AsType(*number, element.value->dtype()) : std::nullopt;
  }
  if (element.From("Neg")) {
    const auto negated = Number(Operand(element, 0));
    return negated ? std::optional<double>(-*negated) : std::nullopt;
  }
  if (element.From("ConstantOfShape")) {
    const Attribute* value = element.producer()->attribute("value");
    const Tensor* tensor = value ? std::get_if<Tensor>(&value->value) : nullptr;
    Visit(*element.producer());
    return tensor ? ScalarNumber(*tensor) : std::optional<double>(0);
  }
  return std::nullopt;
}

}  // namespace pagefuse
