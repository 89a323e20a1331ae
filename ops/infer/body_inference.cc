// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/body_inference.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/schema/function_body.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

bool IsFresh(const std::string& symbol) { return symbol.starts_with(ShapeContext::kFreshPrefix); }

bool IsOpen(const Dim& dim) {
  if (!dim.known()) return true;
  return std::ranges::any_of(dim.terms(), [](const auto& term) { return IsFresh(term.first); });
}

bool IsOpen(const std::optional<Shape>& shape) {
  const auto is_open = [](const Dim& dim) { return IsOpen(dim); };
  return !shape || std::ranges::any_of(shape->dims(), is_open);
}

bool IsOpen(const OpBody& body, const ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    if (!body.typed[static_cast<size_t>(i)] || IsOpen(c.outputs()[i].shape)) return true;
  }
  return false;
}

// Symbols that the body made up are those of this call alone.
class OwnNames {
 public:
  explicit OwnNames(ShapeContext& c) : c_(c) {
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (c.input_shape(i) == nullptr) continue;
      for (const Dim& dim : c.input_shape(i)->dims()) {
        for (const Dim::Term& term : dim.terms()) names_.try_emplace(term.first, term.first);
      }
    }
  }

  Dim Of(const Dim& dim) {
    std::map<std::string, Dim> names;
    for (const Dim::Term& term : dim.terms()) {
      if (!IsFresh(term.first)) continue;
      auto it = names_.find(term.first);
      if (it == names_.end()) it = names_.emplace(term.first, *c_.FreshDim().symbol()).first;
      names.emplace(term.first, Dim::Symbol(it->second));
    }
    return dim.Substitute(names);
  }

 private:
  ShapeContext& c_;
  std::map<std::string, std::string> names_;
};

int IndexOf(const std::vector<std::string>& names, const std::string& name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

// The body with what is known of the call's inputs.
Model BodyFor(const OpBody& body, const ShapeContext& c, SymbolicContents& contents) {
  const Function& function = body.FormOf(c.node()).function;
  Model model;
  model.opset_imports = function.opset_imports;
  model.graph = InstantiateBody(function, c.node());
  for (Value* formal : model.graph->inputs()) {
    const int i = IndexOf(body.inputs, formal->name());
    if (i < 0 || !c.has_input(i)) continue;
    formal->set_dtype(c.input_type(i));
    if (c.input_shape(i) != nullptr) formal->set_shape(*c.input_shape(i));
    if (auto value = c.input_value(i)) contents[formal] = *std::move(value);
  }
  return model;
}

absl::Status MergeOutput(const Value& from, int i, OwnNames& names, ShapeContext& c) {
  const ShapeContext::Known& known = c.outputs()[i];
  std::optional<Shape> shape = known.shape;
  if (from.shape() && !shape) {
    shape = Shape(std::vector<Dim>(from.shape()->rank(), Dim::Unknown()));
  }
  if (from.shape()) {
    const auto error = [&] {
      return c.OutputError(i, StrCat("the ports say ", shape->ToString(), ", the body gives ",
                                     from.shape()->ToString()));
    };
    if (shape->rank() != from.shape()->rank()) return error();
    for (int axis = 0; axis < shape->rank(); ++axis) {
      const Dim& given = (*from.shape())[axis];
      Dim& dim = (*shape)[axis];
      if (Differ(dim, given)) return error();
      if (IsOpen(dim) && given.known()) dim = names.Of(given);
    }
  }
  c.SetOutput(i, from.dtype(), std::move(shape));
  return absl::OkStatus();
}

}  // namespace

const OpBody::Form& OpBody::FormOf(const Node& call) const {
  const auto fits = std::find_if(forms.begin(), forms.end() - 1, [&call](const Form& form) {
    return std::all_of(form.without.begin(), form.without.end(),
                       [&call](int input) { return call.input(input) == nullptr; });
  });
  return *fits;
}

absl::Status InferByBody(const OpBody& body, ShapeContext& c) {
  if (!IsOpen(body, c)) return absl::OkStatus();
  SymbolicContents contents;
  Model model = BodyFor(body, c, contents);
  const absl::Status status = InferShapes(model, &contents);
  if (!status.ok()) return c.Error(StrCat("in its body: ", StdView(status.message())));
  OwnNames names(c);
  for (const Value* output : model.graph->outputs()) {
    const int i = IndexOf(body.outputs, output->name());
    if (i < 0 || !c.has_output(i)) continue;
    PF_RETURN_IF_ERROR(MergeOutput(*output, i, names, c));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
