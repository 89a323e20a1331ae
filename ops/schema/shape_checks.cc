// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/shape_checks.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

bool Differ(const Dim& a, const Dim& b) { return a.is_constant() && b.is_constant() && a != b; }

bool MayAgree(const Shape& a, const Shape& b) {
  return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end(),
                    [](const Dim& x, const Dim& y) { return !Differ(x, y); });
}

std::optional<Shape> CopyOf(const Shape* shape) {
  return shape == nullptr ? std::nullopt : std::optional<Shape>(*shape);
}

std::vector<ShapeContext::Known> KnownOf(const std::vector<Tensor>& inputs) {
  std::vector<ShapeContext::Known> known(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    known[i] = {inputs[i].dtype(), Shape::FromInts(inputs[i].dims()), std::nullopt, &inputs[i]};
  }
  return known;
}

absl::Status ExpectShape(const ShapeContext& context, int i, const Shape& expected) {
  const Shape* shape = context.input_shape(i);
  if (shape == nullptr || MayAgree(*shape, expected)) return absl::OkStatus();
  return context.InputError(
      i, StrCat("expected shape ", expected.ToString(), ", got ", shape->ToString()));
}

absl::Status ExpectOneElement(const ShapeContext& context, int i) {
  const Shape* shape = context.input_shape(i);
  const auto dims = shape == nullptr ? std::nullopt : shape->constant();
  if (!dims || ElementCount(*dims) == 1) return absl::OkStatus();
  return context.InputError(i, StrCat("expected one element, got shape ", shape->ToString()));
}

absl::Status NodeError(const Node& node, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(node.Description(), ": ", what));
}

absl::Status AttributeError(const Node& node, std::string_view name, std::string_view what) {
  return NodeError(node, StrCat("attribute \"", name, "\": ", what));
}

}  // namespace pagefuse
