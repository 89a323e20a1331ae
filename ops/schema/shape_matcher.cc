// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/shape_matcher.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

using NameKind = Signature::NameKind;

bool FitsRank(const DimList& list, int rank) {
  return list.rest.empty() ? rank == list.size() : rank >= list.size();
}

// Calls f(size, dim) for each size of the list; the shape has a rank that fits.
template <typename F>
void ForSizes(const DimList& list, const Shape& shape, const F& f) {
  for (size_t i = 0; i < list.before.size(); ++i) f(list.before[i], shape[static_cast<int>(i)]);
  for (size_t i = 0; i < list.after.size(); ++i) {
    f(list.after[i], shape.back(static_cast<int>(list.after.size() - 1 - i)));
  }
}

std::vector<Dim> RestOf(const DimList& list, const Shape& shape) {
  const auto begin = shape.dims().begin();
  return {begin + list.before.size(), begin + (shape.rank() - list.after.size())};
}

const DeclaredSizes::Rest* FindRest(const DeclaredSizes& sizes, const std::string& name) {
  for (const DeclaredSizes::Rest& rest : sizes.rests) {
    if (rest.name == name) return &rest;
  }
  return nullptr;
}

// `with "indices"`, `without "indices"`
std::string With(const std::string& circumstance) {
  if (circumstance.starts_with("no ")) return StrCat("without ", circumstance.substr(3));
  return StrCat("with ", circumstance);
}

// "[]", "[] or [1]", "[], [1] or [Hk]"
std::string Alternatives(std::span<const DimList> lists) {
  std::string text;
  for (size_t i = 0; i < lists.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : i + 1 == lists.size() ? " or " : ", ", lists[i].text);
  }
  return text;
}

}  // namespace

absl::Status ShapeMatcher::Run() {
  PF_RETURN_IF_ERROR(CheckPresence());
  PF_RETURN_IF_ERROR(CheckInputs());
  return SetOutputs();
}

absl::Status ShapeMatcher::CheckPresence() const {
  const auto check = [&](const PortSignature& port, bool given) -> std::string {
    if (!given && port.required_if && Holds(*port.required_if, op_, c_)) {
      return StrCat("is missing ", With(Circumstance(*port.required_if, op_, c_)));
    }
    if (given && port.only_if && !Holds(*port.only_if, op_, c_)) {
      return StrCat("is not expected ", With(Circumstance(*port.only_if, op_, c_)));
    }
    return "";
  };
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    const int input = static_cast<int>(i);
    const std::string wrong = check(signature_.inputs[i], c_.has_input(input));
    if (!wrong.empty()) return c_.InputError(input, wrong);
  }
  for (size_t i = 0; i < signature_.outputs.size(); ++i) {
    const int output = static_cast<int>(i);
    const std::string wrong = check(signature_.outputs[i], c_.has_output(output));
    if (!wrong.empty()) return c_.OutputError(output, wrong);
  }
  return absl::OkStatus();
}

absl::Status ShapeMatcher::CheckInputs() {
  const int count = std::min<int>(static_cast<int>(signature_.inputs.size()), c_.num_inputs());
  ReadAttributes();
  for (int i = 0; i < count; ++i) BindNames(i);
  PF_RETURN_IF_ERROR(ComputeLets());
  for (int i = 0; i < count; ++i) SolveSizes(i);
  PF_RETURN_IF_ERROR(ComputeLets());
  for (int i = 0; i < count; ++i) PF_RETURN_IF_ERROR(CheckInput(i));
  return absl::OkStatus();
}

void ShapeMatcher::ReadAttributes() {
  for (size_t i = 0; i < signature_.names.size(); ++i) {
    const Signature::NameMeaning& meaning = signature_.meanings[i];
    if (meaning.kind != NameKind::kAttribute) continue;
    const AttributeDef& def = op_.attributes()[meaning.index];
    const Attribute* attribute = c_.node().attribute(def.name);
    const int64_t* value = attribute != nullptr ? std::get_if<int64_t>(&attribute->value)
                                                : std::get_if<int64_t>(&def.default_value);
    if (value != nullptr) sizes_.values[i] = Dim(*value);
  }
}

absl::Status ShapeMatcher::ComputeLets() {
  for (size_t i = 0; i < signature_.names.size(); ++i) {
    const Signature::NameMeaning& meaning = signature_.meanings[i];
    if (meaning.kind != NameKind::kLet || sizes_.values[i].known()) continue;
    const SizeDef& let = op_.lets()[meaning.index];
    if (let.compute) {
      PF_ASSIGN_OR_RETURN(sizes_.values[i], let.compute(c_));
      continue;
    }
    const SizeExpression& size = Chosen(signature_.lets[meaning.index], op_, c_);
    sizes_.values[i] = EvaluateSize(size, sizes_.values).dim;
  }
  return absl::OkStatus();
}

std::span<const DimList> ShapeMatcher::ListsOf(const ShapePattern& pattern) const {
  if (!pattern.chosen.empty()) return {&Chosen(pattern.chosen, op_, c_), 1};
  return pattern.any;
}

const DimList* ShapeMatcher::OnlyList(int input) const {
  const Shape* shape = c_.input_shape(input);
  if (shape == nullptr) return nullptr;
  const DimList* only = nullptr;
  for (const DimList& list : ListsOf(signature_.inputs[input].shape)) {
    if (!FitsRank(list, shape->rank())) continue;
    if (only != nullptr) return nullptr;
    only = &list;
  }
  return only;
}

void ShapeMatcher::BindNames(int input) {
  const DimList* list = OnlyList(input);
  if (list == nullptr) return;
  const Shape& shape = *c_.input_shape(input);
  ForSizes(*list, shape, [&](const SizeExpression& size, const Dim& dim) {
    if (const std::optional<int> name = size.name()) BindName(*name, dim, input);
  });
  if (list->rest.empty() || FindRest(sizes_, list->rest) != nullptr) return;
  sizes_.rests.push_back({list->rest, RestOf(*list, shape), input});
}

// A number tells more than a symbol.
void ShapeMatcher::BindName(int name, const Dim& dim, int input) {
  Dim& value = sizes_.values[name];
  const bool tells = !value.known() || (!value.is_constant() && dim.is_constant());
  if (signature_.meanings[name].kind != NameKind::kDim || !dim.known() || !tells) return;
  value = dim;
  sizes_.sources[name] = input;
}

void ShapeMatcher::SolveSizes(int input) {
  const DimList* list = OnlyList(input);
  if (list == nullptr) return;
  ForSizes(*list, *c_.input_shape(input), [&](const SizeExpression& size, const Dim& dim) {
    if (size.name()) return;
    const std::optional<SolvedName> solved = SolveSize(size, sizes_.values, dim);
    if (solved && solved->size.possible) BindName(solved->name, solved->size.dim, input);
  });
}

absl::Status ShapeMatcher::CheckInput(int input) const {
  const Shape* shape = c_.input_shape(input);
  const ShapePattern& pattern = signature_.inputs[input].shape;
  if (shape == nullptr) return absl::OkStatus();
  if (!pattern.as.empty()) return CheckSameShape(input);
  const std::span<const DimList> lists = ListsOf(pattern);
  const auto fits = [&](const DimList& list) { return Fits(list, *shape); };
  if (!lists.empty() && std::none_of(lists.begin(), lists.end(), fits)) {
    return Mismatch(input, nullptr);
  }
  for (const Relation& relation : pattern.relations) {
    if (!HoldsHere(relation)) return Mismatch(input, &relation);
  }
  return absl::OkStatus();
}

absl::Status ShapeMatcher::CheckSameShape(int input) const {
  const std::string& as = signature_.inputs[input].shape.as;
  const Shape& shape = *c_.input_shape(input);
  int other_input = 0;
  while (op_.inputs()[other_input].name != as) ++other_input;
  const Shape* other = c_.input_shape(other_input);
  if (other == nullptr || MayAgree(shape, *other)) return absl::OkStatus();
  return c_.InputError(input, StrCat("expected the shape of \"", as, "\", ", other->ToString(),
                                     ", got ", shape.ToString()));
}

bool ShapeMatcher::Fits(const DimList& list, const Shape& shape) const {
  if (!FitsRank(list, shape.rank()) || !FitsRest(list, shape)) return false;
  bool fits = true;
  ForSizes(list, shape,
           [&](const SizeExpression& size, const Dim& dim) { fits = fits && FitsSize(size, dim); });
  return fits;
}

bool ShapeMatcher::FitsSize(const SizeExpression& size, const Dim& dim) const {
  const Size expected = EvaluateSize(size, sizes_.values);
  if (!expected.possible || Differ(expected.dim, dim)) return false;
  if (expected.dim.known()) return true;
  const std::optional<SolvedName> solved = SolveSize(size, sizes_.values, dim);
  return !solved || solved->size.possible;
}

bool ShapeMatcher::FitsRest(const DimList& list, const Shape& shape) const {
  const DeclaredSizes::Rest* expected = FindRest(sizes_, list.rest);
  if (list.rest.empty() || expected == nullptr) return true;
  return MayAgree(Shape(RestOf(list, shape)), Shape(expected->dims));
}

bool ShapeMatcher::HoldsHere(const Relation& relation) const {
  const Size left = EvaluateSize(relation.left, sizes_.values);
  const Size right = EvaluateSize(relation.right, sizes_.values);
  if (!left.possible || !right.possible) return false;
  const std::optional<int64_t> a = left.dim.constant();
  const std::optional<int64_t> b = right.dim.constant();
  if (!a || !b) return true;
  switch (relation.kind) {
    case Relation::Kind::kAtMost:
      return *a <= *b;
    case Relation::Kind::kAtLeast:
      return *a >= *b;
    default:
      return *a == *b;
  }
}

// "D = 128 of "q"", for each name that does not come from this input.
void ShapeMatcher::AppendNames(const DimList& list, int input,
                               std::vector<std::string>& facts) const {
  for (const SizeExpression& size : list.before) AppendNames(size, input, facts);
  const DeclaredSizes::Rest* rest = FindRest(sizes_, list.rest);
  if (rest != nullptr && rest->source != input) {
    facts.push_back(StrCat(list.rest, " = ", Shape(rest->dims).ToString(), " of \"",
                           op_.inputs()[rest->source].name, "\""));
  }
  for (const SizeExpression& size : list.after) AppendNames(size, input, facts);
}

void ShapeMatcher::AppendNames(const SizeExpression& size, int input,
                               std::vector<std::string>& facts) const {
  for (const SizeExpression::Term& term : size.terms) {
    if (term.op != SizeExpression::Op::kName) continue;
    const Dim& value = sizes_.values[term.name];
    const int source = sizes_.sources[term.name];
    if (!value.known() || (source == input && source >= 0)) continue;
    const std::string& name = signature_.names[term.name];
    const bool attribute = PlaceOf(op_.attributes(), name) >= 0;
    std::string fact = StrCat(attribute ? StrCat("\"", name, "\"") : name, " = ", value.ToString());
    if (source >= 0) StrAppend(&fact, " of \"", op_.inputs()[source].name, "\"");
    if (std::find(facts.begin(), facts.end(), fact) == facts.end()) facts.push_back(fact);
  }
}

absl::Status ShapeMatcher::Mismatch(int input, const Relation* broken) const {
  const ShapePattern& pattern = signature_.inputs[input].shape;
  const std::span<const DimList> lists = ListsOf(pattern);
  std::vector<std::string> facts;
  std::string expected = Alternatives(lists);
  if (broken != nullptr) {
    StrAppend(&expected, expected.empty() ? "" : ", ", broken->text);
    AppendNames(broken->left, input, facts);
    AppendNames(broken->right, input, facts);
  } else {
    for (const DimList& list : lists) AppendNames(list, input, facts);
  }
  for (std::string& fact : Circumstances(pattern.chosen, op_, c_)) facts.push_back(std::move(fact));
  return c_.InputError(
      input, StrCat("expected ", expected, facts.empty() ? "" : " with ",
                    absl::StrJoin(facts, ", "), ", got ", c_.input_shape(input)->ToString()));
}

absl::Status ShapeMatcher::SetOutputs() {
  const int count = std::min<int>(static_cast<int>(signature_.outputs.size()), c_.num_outputs());
  for (int i = 0; i < count; ++i) {
    if (!c_.has_output(i)) continue;
    PF_ASSIGN_OR_RETURN(std::optional<Shape> shape, OutputShape(i));
    c_.SetOutput(i, DataType::kUndefined, std::move(shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Shape>> ShapeMatcher::OutputShape(int output) {
  const ShapePattern& pattern = signature_.outputs[output].shape;
  if (!pattern.as.empty()) {
    int input = 0;
    while (op_.inputs()[input].name != pattern.as) ++input;
    const Shape* shape = c_.input_shape(input);
    return shape == nullptr ? std::nullopt : std::optional<Shape>(*shape);
  }
  const std::span<const DimList> lists = ListsOf(pattern);
  if (lists.empty()) return std::nullopt;
  const DimList& list = lists[0];
  std::vector<Dim> dims;
  PF_RETURN_IF_ERROR(AppendOutputDims(output, list.before, dims));
  if (!list.rest.empty()) {
    const DeclaredSizes::Rest* rest = FindRest(sizes_, list.rest);
    if (rest == nullptr) return std::nullopt;
    dims.insert(dims.end(), rest->dims.begin(), rest->dims.end());
  }
  PF_RETURN_IF_ERROR(AppendOutputDims(output, list.after, dims));
  return Shape(std::move(dims));
}

absl::Status ShapeMatcher::AppendOutputDims(int output, const std::vector<SizeExpression>& sizes,
                                            std::vector<Dim>& dims) {
  for (const SizeExpression& expression : sizes) {
    Size size = EvaluateSize(expression, sizes_.values);
    if (!size.possible) {
      std::vector<std::string> facts;
      AppendNames(expression, -1, facts);
      return c_.OutputError(output, StrCat("has no size in ", op_.outputs()[output].shape, " with ",
                                           absl::StrJoin(facts, ", ")));
    }
    if (!size.dim.known()) {
      size.dim = c_.FreshDim();
      // The next output that has the name has the same dim.
      if (const std::optional<int> name = expression.name()) sizes_.values[*name] = size.dim;
    }
    dims.push_back(std::move(size.dim));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
