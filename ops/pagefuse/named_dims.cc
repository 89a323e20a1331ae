#include "pagefuse/ops/pagefuse/named_dims.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::optional<int64_t> NumberIn(std::string_view name) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_digit)) return std::nullopt;
  return std::stoll(std::string(name));
}

}  // namespace

Dim* NamedDims::Find(std::string_view name) {
  for (auto& [key, dim] : dims_) {
    if (key == name) return &dim;
  }
  return nullptr;
}

void NamedDims::Set(std::string_view name, Dim dim) {
  if (Dim* known = Find(name)) {
    *known = std::move(dim);
  } else {
    dims_.emplace_back(name, std::move(dim));
  }
}

Dim NamedDims::Get(std::string_view name) const {
  for (const auto& [key, dim] : dims_) {
    if (key == name) return dim;
  }
  return Dim::Unknown();
}

absl::Status NamedDims::Match(int input, std::initializer_list<std::string_view> names) {
  const Shape* shape = context_.has_input(input) ? context_.input_shape(input) : nullptr;
  if (shape == nullptr) return absl::OkStatus();
  bool matches = shape->rank() == static_cast<int>(names.size());
  std::string expected = "expected [";
  std::string with;
  int axis = 0;
  for (const std::string_view name : names) {
    StrAppend(&expected, axis == 0 ? "" : ", ", name);
    const std::optional<int64_t> number = NumberIn(name);
    const Dim known = number ? Dim(*number) : Get(name);
    if (!number && known.known()) {
      StrAppend(&with, with.empty() ? " with " : ", ", name, " = ", known.ToString());
    }
    if (axis < shape->rank()) matches = matches && !Differ(known, (*shape)[axis]);
    ++axis;
  }
  if (!matches) {
    return context_.InputError(input, StrCat(expected, "]", with, ", got ", shape->ToString()));
  }
  axis = 0;
  for (const std::string_view name : names) {
    const Dim& dim = (*shape)[axis++];
    if (NumberIn(name)) continue;
    // A number tells more than a symbol.
    if (!Get(name).known() || dim.is_constant()) Set(name, dim);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
