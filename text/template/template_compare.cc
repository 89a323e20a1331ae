// SPDX-License-Identifier: Apache-2.0
// Equality and order of the values of chat templates, as Python has them.
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/template/template_value.h"

namespace pagefuse::chat_template {
namespace {

absl::StatusOr<bool> EqualLists(Work& work, const List& a, const List& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const bool same, Equal(work, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(Work& work, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a) {
    PF_RETURN_IF_ERROR(work.Charge(b.size()));
    const Value* other = Lookup(b, name.bytes());
    if (other == nullptr) return false;
    PF_ASSIGN_OR_RETURN(const bool same, Equal(work, value, *other));
    if (!same) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<bool> Equal(Work& work, const Value& a, const Value& b) {
  PF_RETURN_IF_ERROR(work.Charge(0));
  if (a.number() && b.number()) {
    return a.integer() && b.integer() ? *a.integer() == *b.integer() : *a.number() == *b.number();
  }
  if (a.text() && b.text()) {
    if (a.text()->size() != b.text()->size()) return false;
    PF_RETURN_IF_ERROR(work.ChargeRead(a.text()->size()));
    return a.text()->bytes() == b.text()->bytes();
  }
  if (a.list() && b.list()) {
    return a.is_tuple() == b.is_tuple() ? EqualLists(work, *a.list(), *b.list()) : false;
  }
  if (a.dict() && b.dict()) return EqualDicts(work, *a.dict(), *b.dict());
  if (a.name_space() || b.name_space()) return a.name_space() == b.name_space();
  if (a.macro() || b.macro()) return a.macro() == b.macro();
  if (a.function() || b.function()) return a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<std::optional<int>> Compare(Work& work, const Value& a, const Value& b) {
  PF_RETURN_IF_ERROR(work.Charge(0));
  if (a.number() && b.number()) {
    const double x = *a.number(), y = *b.number();
    if (a.integer() && b.integer())
      return (*a.integer() > *b.integer()) - (*a.integer() < *b.integer());
    return std::isnan(x) || std::isnan(y) ? std::nullopt : std::optional((x > y) - (x < y));
  }
  if (a.text() && b.text()) {
    PF_RETURN_IF_ERROR(work.ChargeRead(std::min(a.text()->size(), b.text()->size())));
    return a.text()->bytes().compare(b.text()->bytes());
  }
  if (!a.list() || !b.list()) return std::optional<int>();
  for (size_t i = 0; i < a.list()->size() && i < b.list()->size(); ++i) {
    const Value &x = (*a.list())[i], &y = (*b.list())[i];
    PF_ASSIGN_OR_RETURN(const bool same, Equal(work, x, y));
    if (!same) return Compare(work, x, y);
  }
  return static_cast<int>(a.list()->size() > b.list()->size()) -
         static_cast<int>(a.list()->size() < b.list()->size());
}

}  // namespace pagefuse::chat_template
