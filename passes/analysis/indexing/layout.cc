// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/layout.h"

#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

int PlaceOf(const AxisSymbols& symbols, const IndexSymbolPtr& symbol) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i]->key == symbol->key) return static_cast<int>(i);
  }
  return -1;
}

// True if the axis `symbol` in steps of `stride` runs over the whole of `dim`.
bool Fills(const IndexSymbol& symbol, const Dim& stride, const Dim& dim) {
  return ProvablyEqual(symbol.extent * stride, dim) ||
         std::any_of(symbol.also_extent.begin(), symbol.also_extent.end(),
                     [&](const Dim& extent) { return ProvablyEqual(extent * stride, dim); });
}

struct Range {
  int64_t begin = 0, end = 0;
};

// The numbers that an index of symbols of known lengths runs over, if its steps are not negative.
std::optional<Range> RangeOf(const IndexExpr& index) {
  const auto offset = index.constant().constant();
  if (!offset) return std::nullopt;
  Range range{.begin = *offset, .end = *offset + 1};
  for (const auto& [key, term] : index.terms()) {
    const auto extent = term.first->extent.constant(), step = term.second.constant();
    if (term.first->kind != IndexSymbol::Kind::kAxis || !extent || !step || *step < 0) {
      return std::nullopt;
    }
    range.end += (*extent - 1) * *step;
  }
  return range;
}

Dim ProductOf(const std::vector<Dim>& dims) {
  Dim product(1);
  for (const Dim& dim : dims) product = product * dim;
  return product;
}

// Where a symbol is, or its quotient and its remainder, which lie on two axes.
std::vector<int> PlacesOf(const AxisSymbols& symbols, const IndexSymbolPtr& symbol) {
  if (const int place = PlaceOf(symbols, symbol); place >= 0) return {place};
  for (size_t slow = 0; slow < symbols.size(); ++slow) {
    const IndexSymbol& quotient = *symbols[slow];
    if (quotient.kind != IndexSymbol::Kind::kDiv || quotient.args[0].Key() != symbol->key) continue;
    const IndexSymbolPtr rest = DivMod(IndexExpr::Of(symbol), quotient.divisor).second.symbol();
    const int fast = rest ? PlaceOf(symbols, rest) : -1;
    if (fast >= 0) return {static_cast<int>(slow), fast};
  }
  return {};
}

// The integers of a tensor that an axis is at, or its own places where those are a part of it; null for
// an index that is neither, or an axis as it stands.
IndexSymbolPtr RowsAt(const Element& element, int axis) {
  using Kind = IndexSymbol::Kind;
  const IndexExpr& index = element.at[axis];
  const IndexSymbolPtr symbol = (index - IndexExpr(index.constant())).symbol();
  if (!symbol) return nullptr;
  const bool load = symbol->kind == Kind::kLoad && IsInteger(symbol->tensor->dtype());
  const bool part = symbol->kind == Kind::kAxis && !IsPart(*symbol) &&
                    !DigitsOf(index, (*element.value->shape())[axis]).ok();
  return load || part ? symbol : nullptr;
}

bool GathersRows(const Element& element) {
  for (int axis = 0; axis < static_cast<int>(element.at.size()); ++axis) {
    if (RowsAt(element, axis)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Digits> DigitsOf(const IndexExpr& index, const Dim& dim) {
  const auto refuse = [&](std::string_view why) {
    return MatchFailure("index ", index.Key(), " of an axis of length ", dim.ToString(), " ", why);
  };
  Digits digits;
  if (index.is_constant()) {
    if (index.number() == 0 && dim.constant() == 1) return digits;
    return refuse("takes a part of it");
  }
  std::vector<IndexExpr::Term> rest;
  for (const auto& [key, term] : index.terms()) rest.push_back(term);
  if (index.constant().constant() != 0) return refuse("has an offset");
  // From the fastest: its step is 1, that of the next its length.
  Dim stride(1);
  while (!rest.empty()) {
    const auto next = std::ranges::find_if(
        rest, [&](const IndexExpr::Term& term) { return ProvablyEqual(term.second, stride); });
    if (next == rest.end()) return refuse("is no number whose digits are its symbols");
    const IndexSymbolPtr symbol = next->first;
    rest.erase(next);
    Dim length = symbol->extent;
    if (rest.empty()) {
      const Dim left = dim.FloorDiv(stride);
      const bool free = symbol->kind == IndexSymbol::Kind::kLoad ||
                        symbol->kind == IndexSymbol::Kind::kCount ||
                        symbol->kind == IndexSymbol::Kind::kMax;
      if (!free && !Fills(*symbol, stride, dim)) return refuse("takes a part of it");
      length = left;
    }
    digits.symbols.insert(digits.symbols.begin(), symbol);
    digits.lengths.insert(digits.lengths.begin(), length);
    stride = stride * length;
  }
  return digits;
}

absl::StatusOr<Value*> Layout::Gathered(const Element& element,
                                        const std::vector<AxisSymbols>& axes) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) {
    return MatchFailure(*element.value, ": its shape is not known");
  }
  Digits digits;
  bool split = false;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    const auto here = DigitsOf(element.at[axis], (*shape)[axis]);
    if (!here.ok()) return MatchFailure(*element.value, ": ", StdView(here.status().message()));
    split = split || here->symbols.size() != 1;
    digits.symbols.insert(digits.symbols.end(), here->symbols.begin(), here->symbols.end());
    digits.lengths.insert(digits.lengths.end(), here->lengths.begin(), here->lengths.end());
  }
  std::vector<int64_t> perm;
  std::vector<Dim> dims;
  bool join = false;
  for (const AxisSymbols& axis : axes) {
    std::vector<Dim> lengths;
    for (const IndexSymbolPtr& symbol : axis) {
      const std::vector<int> places = PlacesOf(digits.symbols, symbol);
      if (places.empty()) {
        return MatchFailure(*element.value, ": does not depend on ", symbol->key);
      }
      for (const int place : places) {
        perm.push_back(place);
        lengths.push_back(digits.lengths[place]);
      }
      join = join || places.size() > 1;
    }
    join = join || axis.size() != 1;
    dims.push_back(ProductOf(lengths));
  }
  if (perm.size() != digits.symbols.size()) {
    std::string all;
    for (const IndexSymbolPtr& symbol : digits.symbols) StrAppend(&all, " ", symbol->key);
    return MatchFailure(*element.value, ": depends on more than it should:", all);
  }
  Value* value = element.value;
  if (split && !(MovesNothing(perm) && join)) {
    PF_ASSIGN_OR_RETURN(value, Reshaped(value, digits.lengths));
  }
  if (!MovesNothing(perm)) value = builder_.Add("Transpose", {value}, {{"perm", perm}});
  if (!join) return value;
  return Reshaped(value, dims);
}

absl::StatusOr<Value*> Layout::GatheredPart(Element element, const std::vector<AxisSymbols>& axes) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) {
    return MatchFailure(*element.value, ": its shape is not known");
  }
  for (int axis = 0; axis < static_cast<int>(element.at.size()); ++axis) Cut(element, axis);
  return Gathered(element, axes);
}

absl::StatusOr<Value*> Layout::GatheredRows(Element element, const std::vector<AxisSymbols>& axes) {
  if (!element.value->shape()) {
    return MatchFailure(*element.value, ": its shape is not known");
  }
  for (int axis = 0; axis < static_cast<int>(element.at.size()); ++axis) Cut(element, axis);
  if (GathersRows(element)) DropUnitAxes(element);
  for (int axis = static_cast<int>(element.at.size()) - 1; axis >= 0; --axis) {
    PF_RETURN_IF_ERROR(GatherRows(element, axis, axes));
  }
  return Gathered(element, axes);
}

// What rows are gathered from is a matrix then, however it is stored.
void Layout::DropUnitAxes(Element& element) {
  std::vector<int64_t> lengths;
  std::vector<IndexExpr> at;
  const Shape& shape = *element.value->shape();
  if (!shape.constant()) return;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == Dim(1)) continue;
    lengths.push_back(shape[axis].constant().value_or(-1));
    at.push_back(element.at[axis]);
  }
  if (at.size() == element.at.size()) return;
  const std::vector<Dim> dims(lengths.begin(), lengths.end());
  element = {builder_.Reshape(element.value, lengths), std::move(at)};
  element.value->set_shape(Shape(dims));
}

// Replaces an axis by those that its rows run over.
absl::Status Layout::GatherRows(Element& element, int axis, const std::vector<AxisSymbols>& axes) {
  const IndexExpr index = element.at[axis];
  const IndexSymbolPtr symbol = RowsAt(element, axis);
  if (!symbol) return absl::OkStatus();
  Shape shape = *element.value->shape();
  std::vector<AxisSymbols> over;
  std::vector<IndexExpr> at;
  std::vector<Dim> lengths;
  for (const AxisSymbols& symbols : axes) {
    for (const IndexSymbolPtr& each : symbols) {
      if (!index.Mentions(each->key)) continue;
      over.push_back({each});
      at.push_back(IndexExpr::Of(each));
      lengths.push_back(each->extent);
    }
  }
  Value* rows = nullptr;
  if (symbol->kind == IndexSymbol::Kind::kLoad) {
    PF_ASSIGN_OR_RETURN(rows, Gathered({symbol->tensor, symbol->args}, over));
  } else {
    PF_ASSIGN_OR_RETURN(Value * size, Size(symbol->extent));
    rows = builder_.Add("Range", {builder_.Int(0), size, builder_.Int(1)});
  }
  if (index.constant().constant() != 0) {
    PF_ASSIGN_OR_RETURN(Value * first, Size(index.constant()));
    rows = builder_.Add("Add", {builder_.Cast(rows, DataType::kInt64), first});
  }
  element.value = builder_.Add("Gather", {element.value, rows}, {{"axis", axis}});
  auto& dims = shape.dims();
  dims.insert(dims.erase(dims.begin() + axis), lengths.begin(), lengths.end());
  element.value->set_shape(std::move(shape));
  element.at.insert(element.at.erase(element.at.begin() + axis), at.begin(), at.end());
  return absl::OkStatus();
}

void Layout::Cut(Element& element, int axis) {
  IndexExpr& index = element.at[axis];
  const auto length = (*element.value->shape())[axis].constant();
  const std::optional<Range> range = RangeOf(index);
  if (!length || !range || range->end - range->begin == *length || range->begin < 0 ||
      range->end > *length) {
    return;
  }
  Shape shape = *element.value->shape();
  shape.dims()[axis] = Dim(range->end - range->begin);
  element.value = builder_.Add("Slice", {element.value, builder_.Ints({range->begin}),
                                         builder_.Ints({range->end}), builder_.Ints({axis})});
  element.value->set_shape(std::move(shape));
  index = index - IndexExpr(range->begin);
}

absl::StatusOr<Value*> Layout::Spread(Value* value, const std::vector<AxisSymbols>& axes,
                                      const Element& element) {
  AxisSymbols symbols;
  std::vector<Dim> lengths;
  bool split = false;
  for (const AxisSymbols& axis : axes) {
    split = split || axis.size() != 1;
    for (const IndexSymbolPtr& symbol : axis) {
      symbols.push_back(symbol);
      lengths.push_back(symbol->extent);
    }
  }
  const Shape& shape = *element.value->shape();
  std::vector<int64_t> perm;
  bool join = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    PF_ASSIGN_OR_RETURN(const Digits digits, DigitsOf(element.at[axis], shape[axis]));
    join = join || digits.symbols.size() != 1;
    for (const IndexSymbolPtr& symbol : digits.symbols) {
      const int place = PlaceOf(symbols, symbol);
      if (place < 0) return MatchFailure(*element.value, ": depends on ", symbol->key);
      perm.push_back(place);
    }
  }
  if (split && !(MovesNothing(perm) && join)) {
    PF_ASSIGN_OR_RETURN(value, Reshaped(value, lengths));
  }
  if (!MovesNothing(perm)) value = builder_.Add("Transpose", {value}, {{"perm", perm}});
  if (!join && !(split && MovesNothing(perm))) return value;
  return join ? Reshaped(value, shape.dims()) : absl::StatusOr<Value*>(value);
}

absl::StatusOr<Value*> Layout::Reshaped(Value* value, const std::vector<Dim>& dims) {
  std::vector<int64_t> numbers;
  int symbols = 0;
  for (const Dim& dim : dims) {
    numbers.push_back(dim.constant().value_or(-1));
    if (!dim.constant()) ++symbols;
  }
  if (symbols <= 1) return builder_.Add("Reshape", {value, builder_.Ints(numbers)});
  PF_ASSIGN_OR_RETURN(Value * sizes, Sizes(dims));
  return builder_.Add("Reshape", {value, sizes});
}

absl::StatusOr<Value*> Layout::Sizes(const std::vector<Dim>& dims) {
  std::vector<Value*> parts;
  for (const Dim& dim : dims) {
    PF_ASSIGN_OR_RETURN(Value * part, SizeVector(dim));
    parts.push_back(part);
  }
  if (parts.size() == 1) return parts[0];
  return builder_.Add("Concat", parts, {{"axis", 0}});
}

absl::StatusOr<Value*> Layout::SizeVector(const Dim& dim) {
  if (const auto number = dim.constant()) return builder_.Ints({*number});
  for (Value* value : sizes_) {
    if (!value->shape()) continue;
    for (int axis = 0; axis < value->shape()->rank(); ++axis) {
      if (!ProvablyEqual((*value->shape())[axis], dim)) continue;
      Node* shape = builder_.AddNode("", "Shape", {value}, 1);
      shape->SetAttribute("start", {.value = int64_t{axis}});
      shape->SetAttribute("end", {.value = int64_t{axis} + 1});
      return shape->output(0);
    }
  }
  // As many times an axis.
  if (dim.terms().size() == 1 && dim.offset() == 0) {
    const auto& [symbol, times] = *dim.terms().begin();
    if (times > 1) {
      PF_ASSIGN_OR_RETURN(Value * one, SizeVector(Dim::Symbol(symbol)));
      return builder_.Add("Mul", {one, builder_.Ints({times})});
    }
  }
  return MatchFailure("no port has an axis of length ", dim.ToString());
}

absl::StatusOr<Value*> Layout::Size(const Dim& dim) {
  if (const auto number = dim.constant()) return builder_.Int(*number);
  PF_ASSIGN_OR_RETURN(Value * vector, SizeVector(dim));
  return builder_.Add("Squeeze", {vector, builder_.Ints({0})});
}

Value* Layout::AsInt32(Value* value) {
  if (value->dtype() == DataType::kInt32) return value;
  return builder_.Cast(value, DataType::kInt32);
}

}  // namespace pagefuse
