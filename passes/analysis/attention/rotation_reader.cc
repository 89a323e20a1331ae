// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/rotation_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

constexpr int kRank = 4;
constexpr int kChannels = 3;

using Places = std::vector<std::pair<int64_t, int64_t>>;  // the first and the second of an axis

// Whether the elements at all first places are those at the second ones, bit for bit.
bool SameAt(const Tensor& table, const std::vector<Places>& places) {
  const auto* bytes = static_cast<const char*>(table.data());
  const int64_t size = table.byte_size() / table.size();
  std::vector<size_t> at(places.size(), 0);
  while (true) {
    int64_t first = 0, second = 0;
    for (size_t axis = 0; axis < places.size(); ++axis) {
      const auto& place = places[axis][at[axis]];
      first = first * table.dims()[axis] + place.first;
      second = second * table.dims()[axis] + place.second;
    }
    if (std::memcmp(bytes + first * size, bytes + second * size, size) != 0) return false;
    size_t axis = places.size();
    while (axis > 0 && ++at[axis - 1] == places[axis - 1].size()) at[--axis] = 0;
    if (axis == 0) return true;
  }
}

}  // namespace

RotationReader::RotationReader(const Shape& shape, const SymbolicContents& contents,
                               EqualColumns& equal_columns)
    : shape_(shape), reader_(contents), equal_columns_(equal_columns) {
  for (int axis = 0; axis < kChannels; ++axis) {
    at_.push_back(shape[axis] == Dim(1) ? IndexExpr()
                                        : IndexExpr::Of(reader_.NewAxis(shape[axis])));
  }
  pair_ = reader_.NewAxis(Dim(*shape.back(0).constant() / 2));
  channel_ = reader_.NewAxis(shape.back(0));
  // An axis of length 1 is read at 0.
  if (pair_->extent != Dim(1)) {
    pair_at_ = IndexExpr::Of(pair_);
    pairs_ = {pair_};
  }
}

AxisSymbols RotationReader::Axis(int axis) const { return SymbolOf(at_[axis]); }

// Where the first or the second channel of the pair stands.
IndexExpr RotationReader::Channel(int of_pair) const {
  return interleaved_ ? pair_at_.Times(Dim(2)) + IndexExpr(of_pair)
                      : pair_at_ + IndexExpr(of_pair * *pair_->extent.constant());
}

// The element of a value that is broadcast to the shape.
Element RotationReader::Placed(Value* value, int of_pair) const {
  const auto& shape = value->shape();
  Element element{value, {}};
  if (!shape || shape->rank() > kRank) return element;
  std::vector<IndexExpr> at = at_;
  at.push_back(Channel(of_pair));
  element.at.assign(at.end() - shape->rank(), at.end());
  for (int axis = 0; axis < shape->rank(); ++axis) {
    // Also what is cut to one row: that is the same for all.
    if (IsOneOrNone((*shape)[axis])) element.at[axis] = IndexExpr();
  }
  return element;
}

// The first channel's, not followed through a Gather from a constant.
Element RotationReader::Shown(Value* value) {
  Element shown = Placed(value, 0);
  while (const Node* node = shown.producer()) {
    const Element next = reader_.OneStep(shown);
    if ((node->Is("Gather") && node->input(0)->IsConstant()) || next.Key() == shown.Key()) break;
    shown = next;
  }
  return shown;
}

std::optional<Rotation> RotationReader::ReadTerms(const RotationTerms& terms) {
  const bool fits = terms.x->shape() && ProvablyEqual(*terms.x->shape(), shape_) &&
                    terms.turned->shape() && ProvablyEqual(*terms.turned->shape(), shape_);
  if (!fits) return std::nullopt;
  for (const bool interleaved : {true, false}) {
    interleaved_ = interleaved;
    if (!IsTurned(terms)) continue;
    const auto cos = ReadTable(At(terms.cos, 0), At(terms.cos, 1), Shown(terms.cos));
    const auto sin = ReadTable(At(terms.sin, 0), At(terms.sin, 1), Shown(terms.sin));
    if (!cos || !sin || cos->tokens != sin->tokens) return std::nullopt;
    std::vector<IndexExpr> at = at_;
    at.push_back(IndexExpr::Of(channel_));
    return Rotation{{terms.x, at}, *cos, *sin, interleaved};
  }
  return std::nullopt;
}

// (-x[hi], x[lo])
bool RotationReader::IsTurned(const RotationTerms& terms) {
  const Element first = At(terms.turned, 0), second = At(terms.turned, 1);
  return first.From("Neg") && second.Key() == At(terms.x, 0).Key() &&
         reader_.Operand(first, 0).Key() == At(terms.x, 1).Key();
}

// Whether both are computed of the same numbers by the same elementwise nodes.
bool RotationReader::AreSame(const Element& a, const Element& b) {
  constexpr int kMostCompared = 256;
  if (a.Key() == b.Key()) return true;
  if (++compared_ > kMostCompared) return false;
  const Node* node = a.producer();
  if (a.value != b.value) return false;
  if (a.value->IsConstant()) return HoldTheSame(a, b);
  if (!node || !IsElementwise(*node)) return false;
  for (int i = 0; i < node->num_inputs(); ++i) {
    if (!AreSame(reader_.Operand(a, i), reader_.Operand(b, i))) return false;
  }
  return true;
}

// Whether a constant table holds the same at both for every pair, wherever its other axes stand: one
// that has the cosines of both channels of a pair has them twice.
bool RotationReader::HoldTheSame(const Element& a, const Element& b) {
  const Tensor& table = *a.value->initializer();
  const int rank = table.rank();
  const int64_t pairs = *pair_->extent.constant();
  const bool whole_bytes = table.size() > 0 && table.byte_size() % table.size() == 0;
  if (!whole_bytes || static_cast<int>(a.at.size()) != rank) return false;
  // Places of each axis at which both are compared: all of them, or one for each pair.
  std::vector<Places> places(rank);
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t length = table.dims()[axis];
    if (a.at[axis].Key() == b.at[axis].Key()) {
      for (int64_t i = 0; i < length; ++i) places[axis].emplace_back(i, i);
      continue;
    }
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const auto at = [&](const IndexExpr& index) {
        const Dim step = pairs_.empty() ? Dim(0) : index.Step(pair_at_);
        const auto number = (index - pair_at_.Times(step)).number();
        const auto place = step.constant();
        return number && place ? *number + pair * *place : int64_t{-1};
      };
      const int64_t first = at(a.at[axis]), second = at(b.at[axis]);
      if (std::min(first, second) < 0 || std::max(first, second) >= length) return false;
      places[axis].emplace_back(first, second);
    }
  }
  const auto [it, is_new] =
      equal_columns_.try_emplace(StrCat(pairs, " ", a.Key(), " ", b.Key()), false);
  if (is_new) it->second = SameAt(table, places);
  return it->second;
}

// The same number for both channels of a pair and all heads.
std::optional<RotationTable> RotationReader::ReadTable(const Element& first, const Element& second,
                                                       const Element& shown) {
  compared_ = 0;
  if (first.at.empty() || !AreSame(first, second)) return std::nullopt;
  const auto mentions = [&](int axis) {
    const IndexSymbolPtr symbol = at_[axis].symbol();
    return symbol && first.Mentions(symbol);
  };
  if (mentions(1) && mentions(2)) return std::nullopt;
  return RotationTable{first, shown, at_[0].symbol() != nullptr && !mentions(0),
                       mentions(1) ? 1 : 2};
}

// A product, in both orders of its factors.
std::vector<RotationReader::Product> RotationReader::ProductsOf(const Element& element) {
  if (!element.From("Mul")) return {};
  const Element a = reader_.Operand(element, 0), b = reader_.Operand(element, 1);
  const auto operand = [&](int i) {
    Value* value = element.producer()->input(i);
    const int rank = value->shape() ? value->shape()->rank() : -1;
    // One that is repeated is no row of its own.
    const bool whole = rank == static_cast<int>(element.at.size());
    return Element{value, whole ? element.at : std::vector<IndexExpr>{}};
  };
  return {{a, b, operand(0)}, {b, a, operand(1)}};
}

std::optional<Rotation> RotationReader::ReadPairs(Value* y) {
  // One pair: which channel is which does not show.
  if (pairs_.empty()) return std::nullopt;
  for (const bool interleaved : {true, false}) {
    interleaved_ = interleaved;
    const Element first = At(y, 0), second = At(y, 1);
    if (!first.From("Sub") || !second.From("Add")) continue;
    if (const auto rotation = ReadProducts(first, second)) return rotation;
  }
  return std::nullopt;
}

// Whether the sum is b * c + a * s, in any order, of straight a * c and crossed b * s.
bool RotationReader::IsCrossedSum(const Element& sum, const Product& straight,
                                  const Product& crossed) {
  const auto is = [](const Product& product, const Element& number, const Element& factor) {
    return product.number.Key() == number.Key() && product.factor.Key() == factor.Key();
  };
  for (int side : {0, 1}) {
    bool first = false, second = false;
    for (const Product& product : ProductsOf(reader_.Operand(sum, side))) {
      first = first || is(product, crossed.number, straight.factor);
    }
    for (const Product& product : ProductsOf(reader_.Operand(sum, 1 - side))) {
      second = second || is(product, straight.number, crossed.factor);
    }
    if (first && second) return true;
  }
  return false;
}

std::optional<Rotation> RotationReader::ReadProducts(const Element& first, const Element& second) {
  for (const Product& straight : ProductsOf(reader_.Operand(first, 0))) {
    for (const Product& crossed : ProductsOf(reader_.Operand(first, 1))) {
      if (!IsCrossedSum(second, straight, crossed)) continue;
      const auto x = WholeOf(straight, crossed);
      const auto cos = ReadTable(straight.factor, straight.factor, straight.factor);
      const auto sin = ReadTable(crossed.factor, crossed.factor, crossed.factor);
      if (!x || !cos || !sin || cos->tokens != sin->tokens) continue;
      return Rotation{*x, *cos, *sin, interleaved_};
    }
  }
  return std::nullopt;
}

// Values of the shape of y that an operand is the first or second channel of, from it upwards.
std::vector<Value*> RotationReader::RowsBehind(Element operand, int of_pair) {
  constexpr int kSteps = 8;
  std::vector<Value*> rows;
  for (int step = 0; step < kSteps && !operand.at.empty(); ++step) {
    bool in_place = operand.value->shape() && ProvablyEqual(*operand.value->shape(), shape_) &&
                    operand.at.back().Key() == Channel(of_pair).Key();
    for (int axis = 0; in_place && axis < kChannels; ++axis) {
      in_place = operand.at[axis].Key() == at_[axis].Key();
    }
    if (in_place) rows.push_back(operand.value);
    const Element next = reader_.OneStep(operand);
    if (next.Key() == operand.Key()) break;
    operand = next;
  }
  return rows;
}

// The tensor of which these are the two channels of a pair, as pairs lie in y.
std::optional<Element> RotationReader::WholeOf(const Product& first, const Product& second) {
  const std::vector<Value*> of_second = RowsBehind(second.operand, 1);
  for (Value* rows : RowsBehind(first.operand, 0)) {
    if (std::find(of_second.begin(), of_second.end(), rows) == of_second.end()) continue;
    std::vector<IndexExpr> at = at_;
    at.push_back(IndexExpr::Of(channel_));
    return Element{rows, at};
  }
  return WholeSource(first.number, second.number);
}

// The same of where both come from, if an arrangement of it is what y has.
std::optional<Element> RotationReader::WholeSource(const Element& first, const Element& second) {
  if (first.value != second.value || first.at.size() != second.at.size()) return std::nullopt;
  Element whole = first;
  int axes = 0;
  for (size_t i = 0; i < whole.at.size(); ++i) {
    if (!first.at[i].Mentions(pair_->key)) {
      if (first.at[i].Key() != second.at[i].Key()) return std::nullopt;
      continue;
    }
    ++axes;
    const IndexExpr step = Channel(1) - Channel(0);
    if ((second.at[i] - first.at[i]).Key() != step.Key()) return std::nullopt;
    whole.at[i] = first.at[i] - Channel(0) + IndexExpr::Of(channel_);
    if (whole.at[i].Mentions(pair_->key)) return std::nullopt;
  }
  const auto& shape = whole.value->shape();
  for (size_t i = 0; axes == 1 && i < whole.at.size(); ++i) {
    if (!shape || !DigitsOf(whole.at[i], (*shape)[static_cast<int>(i)]).ok()) return std::nullopt;
  }
  return axes == 1 ? std::optional(whole) : std::nullopt;
}

absl::StatusOr<Value*> RotationReader::ArrangedTable(GraphBuilder& builder,
                                                     const RotationTable& table,
                                                     std::vector<Value*> sizes) {
  sizes.insert(sizes.begin(), table.row.value);
  Layout layout(builder, std::move(sizes));
  const AxisSymbols sequences = table.shared ? AxisSymbols{} : Axis(0);
  const std::vector<AxisSymbols> axes = {sequences, Axis(table.tokens), pairs_};
  const auto rows = layout.GatheredRows(table.row, axes);
  // Numbers of rows that are computed somehow are taken as they are.
  return rows.ok() ? rows : layout.GatheredPart(table.shown, axes);
}

absl::StatusOr<Value*> RotationReader::ArrangedRows(GraphBuilder& builder,
                                                    const Rotation& rotation) {
  const Element& x = rotation.x;
  const bool as_it_is = x.value->shape() && ProvablyEqual(*x.value->shape(), shape_);
  if (as_it_is && x.at.back().Key() == IndexExpr::Of(channel_).Key()) return x.value;
  Layout layout(builder, {x.value});
  PF_ASSIGN_OR_RETURN(Value * rows,
                      layout.GatheredPart(x, {Axis(0), Axis(1), Axis(2), AxisSymbols{channel_}}));
  if (!rows->shape()) rows->set_shape(shape_);
  return rows;
}

}  // namespace pagefuse
