#include "pagefuse/passes/words/arrange.h"

#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/refused.h"

namespace pagefuse {
namespace {

int PlaceOf(const AxisAtoms& atoms, const AtomPtr& atom) {
  for (size_t i = 0; i < atoms.size(); ++i) {
    if (atoms[i]->key == atom->key) return static_cast<int>(i);
  }
  return -1;
}

bool IsIdentity(const std::vector<int64_t>& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// True if the axis `atom` in steps of `stride` runs over the whole of `dim`.
bool Fills(const IndexAtom& atom, const Dim& stride, const Dim& dim) {
  return ProvablyEqual(atom.extent * stride, dim) ||
         std::any_of(atom.also_extent.begin(), atom.also_extent.end(),
                     [&](const Dim& extent) { return ProvablyEqual(extent * stride, dim); });
}

struct Range {
  int64_t begin = 0, end = 0;
};

// The numbers that an index of atoms of known lengths runs over, if its steps are not negative.
std::optional<Range> RangeOf(const IndexForm& index) {
  const auto offset = index.constant().constant();
  if (!offset) return std::nullopt;
  Range range{.begin = *offset, .end = *offset + 1};
  for (const auto& [key, term] : index.terms()) {
    const auto extent = term.first->extent.constant(), step = term.second.constant();
    if (term.first->kind != IndexAtom::Kind::kAxis || !extent || !step || *step < 0) {
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

// Where an atom is, or its quotient and its remainder, which lie on two axes.
std::vector<int> PlacesOf(const AxisAtoms& atoms, const AtomPtr& atom) {
  if (const int place = PlaceOf(atoms, atom); place >= 0) return {place};
  for (size_t slow = 0; slow < atoms.size(); ++slow) {
    const IndexAtom& quotient = *atoms[slow];
    if (quotient.kind != IndexAtom::Kind::kDiv || quotient.args[0].Key() != atom->key) continue;
    const AtomPtr rest = DivMod(IndexForm::Of(atom), quotient.divisor).second.atom();
    const int fast = rest ? PlaceOf(atoms, rest) : -1;
    if (fast >= 0) return {static_cast<int>(slow), fast};
  }
  return {};
}

}  // namespace

absl::StatusOr<Digits> DigitsOf(const IndexForm& index, const Dim& dim) {
  const auto refuse = [&](std::string_view why) {
    return Refused("index ", index.Key(), " of an axis of length ", dim.ToString(), " ", why);
  };
  Digits digits;
  if (index.is_constant()) {
    if (index.number() == 0 && dim.constant() == 1) return digits;
    return refuse("takes a part of it");
  }
  std::vector<IndexForm::Term> rest;
  for (const auto& [key, term] : index.terms()) rest.push_back(term);
  if (index.constant().constant() != 0) return refuse("has an offset");
  // From the fastest: its step is 1, that of the next its length.
  Dim stride(1);
  while (!rest.empty()) {
    const auto next = std::find_if(rest.begin(), rest.end(), [&](const IndexForm::Term& term) {
      return ProvablyEqual(term.second, stride);
    });
    if (next == rest.end()) return refuse("is no number whose digits are its atoms");
    const AtomPtr atom = next->first;
    rest.erase(next);
    Dim length = atom->extent;
    if (rest.empty()) {
      const Dim left = dim.FloorDiv(stride);
      const bool free = atom->kind == IndexAtom::Kind::kLoad ||
                        atom->kind == IndexAtom::Kind::kCount ||
                        atom->kind == IndexAtom::Kind::kMax;
      if (!free && !Fills(*atom, stride, dim)) return refuse("takes a part of it");
      length = left;
    }
    digits.atoms.insert(digits.atoms.begin(), atom);
    digits.lengths.insert(digits.lengths.begin(), length);
    stride = stride * length;
  }
  return digits;
}

absl::StatusOr<Value*> Arranger::Gathered(const Element& element,
                                          const std::vector<AxisAtoms>& axes) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) {
    return Refused(*element.value, ": its shape is not known");
  }
  Digits digits;
  bool split = false;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    const auto here = DigitsOf(element.at[axis], (*shape)[axis]);
    if (!here.ok()) return Refused(*element.value, ": ", StdView(here.status().message()));
    split = split || here->atoms.size() != 1;
    digits.atoms.insert(digits.atoms.end(), here->atoms.begin(), here->atoms.end());
    digits.lengths.insert(digits.lengths.end(), here->lengths.begin(), here->lengths.end());
  }
  std::vector<int64_t> perm;
  std::vector<Dim> dims;
  bool join = false;
  for (const AxisAtoms& axis : axes) {
    std::vector<Dim> lengths;
    for (const AtomPtr& atom : axis) {
      const std::vector<int> places = PlacesOf(digits.atoms, atom);
      if (places.empty()) {
        return Refused(*element.value, ": does not depend on ", atom->key);
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
  if (perm.size() != digits.atoms.size()) {
    std::string all;
    for (const AtomPtr& atom : digits.atoms) StrAppend(&all, " ", atom->key);
    return Refused(*element.value, ": depends on more than it should:", all);
  }
  Value* value = element.value;
  if (split && !(IsIdentity(perm) && join)) {
    PF_ASSIGN_OR_RETURN(value, Reshaped(value, digits.lengths));
  }
  if (!IsIdentity(perm)) value = builder_.Add("Transpose", {value}, "perm", perm);
  if (!join) return value;
  return Reshaped(value, dims);
}

absl::StatusOr<Value*> Arranger::GatheredPart(Element element, const std::vector<AxisAtoms>& axes) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) {
    return Refused(*element.value, ": its shape is not known");
  }
  for (int axis = 0; axis < static_cast<int>(element.at.size()); ++axis) Cut(element, axis);
  return Gathered(element, axes);
}

void Arranger::Cut(Element& element, int axis) {
  IndexForm& index = element.at[axis];
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
  index = index - IndexForm(range->begin);
}

absl::StatusOr<Value*> Arranger::Spread(Value* value, const std::vector<AxisAtoms>& axes,
                                        const Element& element) {
  AxisAtoms atoms;
  std::vector<Dim> lengths;
  bool split = false;
  for (const AxisAtoms& axis : axes) {
    split = split || axis.size() != 1;
    for (const AtomPtr& atom : axis) {
      atoms.push_back(atom);
      lengths.push_back(atom->extent);
    }
  }
  const Shape& shape = *element.value->shape();
  std::vector<int64_t> perm;
  bool join = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    PF_ASSIGN_OR_RETURN(const Digits digits, DigitsOf(element.at[axis], shape[axis]));
    join = join || digits.atoms.size() != 1;
    for (const AtomPtr& atom : digits.atoms) {
      const int place = PlaceOf(atoms, atom);
      if (place < 0) return Refused(*element.value, ": depends on ", atom->key);
      perm.push_back(place);
    }
  }
  if (split && !(IsIdentity(perm) && join)) {
    PF_ASSIGN_OR_RETURN(value, Reshaped(value, lengths));
  }
  if (!IsIdentity(perm)) value = builder_.Add("Transpose", {value}, "perm", perm);
  if (!join && !(split && IsIdentity(perm))) return value;
  return join ? Reshaped(value, shape.dims()) : absl::StatusOr<Value*>(value);
}

absl::StatusOr<Value*> Arranger::Reshaped(Value* value, const std::vector<Dim>& dims) {
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

absl::StatusOr<Value*> Arranger::Sizes(const std::vector<Dim>& dims) {
  std::vector<Value*> parts;
  for (const Dim& dim : dims) {
    PF_ASSIGN_OR_RETURN(Value * part, SizeVector(dim));
    parts.push_back(part);
  }
  if (parts.size() == 1) return parts[0];
  return builder_.Add("Concat", parts, "axis", int64_t{0});
}

absl::StatusOr<Value*> Arranger::SizeVector(const Dim& dim) {
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
  return Refused("no port has an axis of length ", dim.ToString());
}

absl::StatusOr<Value*> Arranger::Size(const Dim& dim) {
  if (const auto number = dim.constant()) return builder_.Int(*number);
  PF_ASSIGN_OR_RETURN(Value * vector, SizeVector(dim));
  return builder_.Add("Squeeze", {vector, builder_.Ints({0})});
}

Value* Arranger::AsInt32(Value* value) {
  if (value->dtype() == DataType::kInt32) return value;
  return builder_.Add("Cast", {value}, "to", static_cast<int64_t>(DataType::kInt32));
}

}  // namespace pagefuse
