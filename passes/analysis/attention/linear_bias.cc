// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/linear_bias.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

// The mask input [B, T] that a value is, by way of casts.
const Value* MaskInput(const Value* value) {
  while (const Node* cast = ProducerIf(value, "Cast")) value = cast->input(0);
  const bool mask = value && value->is_input() && value->shape() && value->shape()->rank() == 2;
  return mask ? value : nullptr;
}

class BiasReader {
 public:
  BiasReader(Value* value, const std::optional<Dim>& keys, const SymbolicContents& contents)
      : reader_(contents), value_(value), keys_(keys) {}

  std::optional<LinearBias> Read() {
    const auto& shape = value_->shape();
    if (shape->rank() > 4) return std::nullopt;
    const auto whole = reader_.Whole(value_);
    if (!whole.ok()) return std::nullopt;
    const int rank = shape->rank();
    key_ = whole->at[rank - 1].symbol();
    head_ = rank > 2 ? whole->at[rank - 3].symbol() : nullptr;
    query_ = whole->at[rank - 2].symbol();
    if (!key_ || (rank > 2 && !head_)) return std::nullopt;
    heads_ = rank > 2 ? (*shape)[rank - 3].constant().value_or(0) : 0;
    if (heads_ < 1) return std::nullopt;
    return ReadProduct(reader_.Source(*whole));
  }

 private:
  // One factor of the heads, one of the keys, and the mask, which hides the keys where it is 0.
  std::optional<LinearBias> ReadProduct(const Element& element) {
    const Factors factors = FactorsOf(reader_, element);
    LinearBias bias;
    bias.factor = factors.number;
    std::optional<int64_t> grows;
    for (const Element& factor : factors.others) {
      if (RunsOverHeads(factor)) {
        if (bias.slopes) return std::nullopt;
        bias.slopes = factor.value;
        continue;
      }
      if (MaskInput(factor.value)) {
        bias.padding = MaskInput(factor.value);
        continue;
      }
      if (grows) return std::nullopt;
      if (const auto table = ReadTable(factor)) {
        bias.numbers = *table;
        bias.most_keys = table_length_;
        grows = 1;
      } else {
        grows = ReadPlace(factor, bias);
        if (!grows) return std::nullopt;
      }
    }
    const bool slopes = (bias.slopes != nullptr) != !bias.numbers.empty();
    if (!grows || !slopes || !IsOfAllKeys(bias)) return std::nullopt;
    bias.factor *= static_cast<double>(*grows);
    return bias;
  }

  // Whether an axis that is broadcast to the keys has a place for each of them, and not one for all.
  bool IsOfAllKeys(const LinearBias& bias) const {
    if (!keys_) return true;
    const Dim axis = value_->shape()->back(0);
    const bool of_mask = bias.padding && ProvablyEqual(axis, (*bias.padding->shape())[1]);
    // What a table is cut to is of as many as there are up to its end.
    return of_mask || ends_with_table_ || ProvablyEqual(axis, *keys_) ||
           (bias.most_keys > 1 && NumberInMin(axis, *keys_) == bias.most_keys);
  }

  // [H], or with axes of length 1.
  bool RunsOverHeads(const Element& element) const {
    const auto& shape = element.value->shape();
    if (!shape) return false;
    bool found = false;
    for (int axis = 0; axis < shape->rank(); ++axis) {
      const IndexSymbolPtr symbol = element.at[axis].symbol();
      if (symbol && symbol->key == head_->key) {
        if (found || (*shape)[axis].constant() != heads_) return false;
        found = true;
      } else if ((*shape)[axis].constant() != 1) {
        return false;
      }
    }
    return found;
  }

  // By how much an integer grows from key to key.
  std::optional<int64_t> ReadPlace(const Element& place, LinearBias& bias) {
    if (const Value* mask = CountedMask(place)) {
      if (bias.padding && bias.padding != mask) return std::nullopt;
      bias.padding = mask;
      return 1;
    }
    Element element = place;
    bool exact = true;
    while (element.From("Cast")) {
      exact = exact && HoldsExactly(element.value->dtype(), 0, value_->shape()->back(0));
      element = reader_.Operand(element, 0);
    }
    if (element.From("Abs")) {
      return exact ? ReadDistance(reader_.Operand(element, 0)) : std::nullopt;
    }
    return Growth(reader_.ReadIndex(place));
  }

  // The coefficient of the key, if all else is the same for the row.
  std::optional<int64_t> Growth(const IndexExpr& form) const {
    const auto term = form.terms().find(key_->key);
    if (term == form.terms().end()) return std::nullopt;
    const auto coefficient = term->second.second.constant();
    const IndexExpr rest = form - IndexExpr::Of(key_).Times(term->second.second);
    const bool row = !rest.Mentions(key_->key) && !rest.Mentions(head_->key);
    // Floats of which nothing is known may be infinite, or so large that the key is lost in them.
    const bool integers = std::ranges::none_of(rest.terms(), [](const auto& term) {
      const IndexSymbol& symbol = *term.second.first;
      return symbol.kind == IndexSymbol::Kind::kLoad && IsFloatingPoint(symbol.tensor->dtype());
    });
    return row && integers ? coefficient : std::nullopt;
  }

  // |key - query| is query - key where the query sees the key: the last query is the last key.
  std::optional<int64_t> ReadDistance(Element element) const {
    if (!query_) return std::nullopt;
    const IndexExpr form = const_cast<IndexingAnalysis&>(reader_).ReadIndex(element);
    const Dim keys = value_->shape()->back(0), queries = value_->shape()->back(1);
    const IndexExpr ahead = IndexExpr::Of(key_) - IndexExpr::Of(query_) - IndexExpr(keys - queries);
    if ((form - ahead).number() == 0 || (form + ahead).number() == 0) return -1;
    return std::nullopt;
  }

  // The mask whose ones are counted up to the key, less some number.
  const Value* CountedMask(Element element) {
    // What stands behind a type has to come out in it: counts, less all numbers that may be taken off
    // before.
    std::vector<DataType> types;
    double most = 0;
    while (element.From("Cast") || element.From("Sub") || element.From("Add")) {
      types.push_back(element.value->dtype());
      if (!element.From("Cast")) {
        const auto number = reader_.Number(reader_.Operand(element, 1));
        if (!number || !(std::abs(*number) < kMostTaken)) return nullptr;
        most += std::ceil(std::abs(*number));
      }
      element = reader_.Operand(element, 0);
    }
    types.push_back(element.value->dtype());
    const Dim off(static_cast<int64_t>(most));
    const Dim least = most == 0 ? Dim(0) : Dim(0) - off, last = value_->shape()->back(0) + off;
    const bool exact =
        std::ranges::all_of(types, [&](DataType type) { return HoldsExactly(type, least, last); });
    if (!exact || !element.From("CumSum") || element.at.size() != 2) return nullptr;
    const Node& sums = *element.producer();
    const auto axis = KnownInts(sums.input(1), reader_.contents());
    const IndexSymbolPtr along = element.at[1].symbol();
    const bool keys = axis && axis->size() == 1 && NormalAxis(axis->front(), 2) == 1 && along &&
                      along->key == key_->key && IntOr(sums, "reverse", 0) == 0;
    return keys ? MaskInput(sums.input(0)) : nullptr;
  }

  // What a constant [.., H, .., N] grows by along its last axis, at any place of which the key may
  // begin.
  std::optional<std::vector<float>> ReadTable(Element element) {
    while (element.From("Slice") && ConstantOf(element.producer()->input(0))) {
      const Node& slice = *element.producer();
      const Value* steps = slice.input(4);
      const auto step = steps ? KnownInts(steps, reader_.contents()) : std::vector<int64_t>{1};
      if (!step || std::ranges::count(*step, 1) != static_cast<int64_t>(step->size())) {
        return std::nullopt;
      }
      // Another head would be another slope.
      if (!KeepsHeads(slice)) return std::nullopt;
      element.value = slice.input(0);
    }
    const Tensor* table = ConstantOf(element.value);
    if (!table || table->dtype() != DataType::kFloat || table->rank() < 2) return std::nullopt;
    const int64_t length = table->dims().back();
    if (length < 2 || table->size() != heads_ * length) return std::nullopt;
    if (Growth(element.at.back()) != 1 || !HeadsAlone(element)) return std::nullopt;
    table_length_ = length;
    const IndexExpr first = element.at.back() - IndexExpr::Of(key_);
    ends_with_table_ =
        keys_ && first.is_constant() && ProvablyEqual(first.constant(), Dim(length) - *keys_);
    return Slopes(table->values<float>(), length);
  }

  static bool KeepsHeads(const Node& slice) {
    const auto &from = slice.input(0)->shape(), &to = slice.output(0)->shape();
    if (!from || !to || from->rank() != to->rank()) return false;
    for (int axis = 0; axis + 1 < from->rank(); ++axis) {
      if ((*from)[axis] != Dim(1) && !ProvablyEqual((*from)[axis], (*to)[axis])) return false;
    }
    return true;
  }

  bool HeadsAlone(const Element& element) const {
    for (size_t axis = 0; axis + 1 < element.at.size(); ++axis) {
      const IndexSymbolPtr symbol = element.at[axis].symbol();
      const bool head = symbol && symbol->key == head_->key;
      if (!head && (*element.value->shape())[static_cast<int>(axis)].constant() != 1) return false;
    }
    return true;
  }

  std::optional<std::vector<float>> Slopes(std::span<const float> table, int64_t length) const {
    std::vector<float> slopes;
    for (int64_t head = 0; head < heads_; ++head) {
      const std::span<const float> row = table.subspan(head * length, length);
      const double whole = static_cast<double>(row.back()) - row.front();
      const double slope = whole / static_cast<double>(length - 1);
      for (int64_t i = 0; i < length; ++i) {
        const double expected = row.front() + slope * static_cast<double>(i);
        if (std::abs(row[i] - expected) > 1e-5 * std::abs(whole)) return std::nullopt;
      }
      slopes.push_back(static_cast<float>(slope));
    }
    return slopes;
  }

  static constexpr double kMostTaken = 1 << 20;

  IndexingAnalysis reader_;
  Value* value_;
  const std::optional<Dim> keys_;
  bool ends_with_table_ = false;
  int64_t table_length_ = 0;
  IndexSymbolPtr key_, head_, query_;
  int64_t heads_ = 0;
};

}  // namespace

std::optional<LinearBias> ReadLinearBias(Value* value, const std::optional<Dim>& keys,
                                         const SymbolicContents& contents) {
  const auto& shape = value->shape();
  if (!IsFloatingPoint(value->dtype()) || !shape || shape->rank() < 2) return std::nullopt;
  return BiasReader(value, keys, contents).Read();
}

}  // namespace pagefuse
