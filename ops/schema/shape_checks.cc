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

}  // namespace pagefuse
