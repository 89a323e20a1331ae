// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/fields.h"

#include <algorithm>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

std::string Joined(std::initializer_list<std::string_view> values) {
  std::string text;
  size_t left = values.size();
  for (const std::string_view value : values) {
    StrAppend(&text, "\"", value, "\"", left == 1 ? "" : left == 2 ? " or " : ", ");
    --left;
  }
  return text;
}

std::optional<int64_t> IntegerOf(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    return number <= kMost ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

std::string Found(const Json& value) {
  if (value.is_string()) {
    constexpr size_t kMost = 40;
    const auto& text = value.get_ref<const std::string&>();
    return text.size() <= kMost ? StrCat("\"", text, "\"")
                                : StrCat("a text of ", text.size(), " bytes");
  }
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  return value.dump();
}

absl::StatusOr<Fields> Fields::Of(const Json& object, std::string param) {
  if (object.is_object()) return Fields(object, std::move(param));
  const std::string what = StrCat("expected an object, got ", Found(object));
  if (param.empty()) return absl::InvalidArgumentError(StrCat("body: ", what));
  return BadParam(param, what);
}

std::string Fields::ParamOf(std::string_view name) const {
  return param_.empty() ? std::string(name) : StrCat(param_, ".", name);
}

absl::Status Fields::Wrong(std::string_view name, std::string_view what) const {
  return BadParam(ParamOf(name), what);
}

const Json* Fields::Find(std::string_view name) {
  read_.insert(std::string(name));
  const auto it = object_->find(std::string(name));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<std::optional<double>> Fields::Number(std::string_view name, double least,
                                                     double most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= least && number <= most) return number;
  }
  return Wrong(name,
               StrCat("expected a number from ", least, " to ", most, ", got ", Found(*value)));
}

absl::StatusOr<std::optional<int64_t>> Fields::Integer(std::string_view name, int64_t least,
                                                       int64_t most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = IntegerOf(*value);
  if (number && *number >= least && *number <= most) return number;
  return Wrong(name,
               StrCat("expected an integer from ", least, " to ", most, ", got ", Found(*value)));
}

absl::StatusOr<std::optional<bool>> Fields::Flag(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  return Wrong(name, StrCat("expected true or false, got ", Found(*value)));
}

absl::StatusOr<std::optional<std::string>> Fields::Text(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  return Wrong(name, StrCat("expected a text, got ", Found(*value)));
}

absl::StatusOr<std::optional<std::string>> Fields::OneOf(
    std::string_view name, std::initializer_list<std::string_view> values) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (std::ranges::count(values, std::string_view(text)) > 0) return text;
  }
  return Wrong(name, StrCat("expected ", Joined(values), ", got ", Found(*value)));
}

absl::StatusOr<std::optional<Fields>> Fields::Object(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  PF_ASSIGN_OR_RETURN(Fields fields, Of(*value, ParamOf(name)));
  return std::optional<Fields>(std::move(fields));
}

absl::StatusOr<std::optional<std::vector<std::string>>> Fields::Texts(std::string_view name,
                                                                      size_t most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!value->is_array() || value->size() > most || !std::ranges::all_of(*value, is_text)) {
    return Wrong(name, StrCat("expected a list of ", most, " texts at most, got ", Found(*value),
                              value->is_array() ? StrCat(" of ", value->size()) : ""));
  }
  return value->get<std::vector<std::string>>();
}

absl::StatusOr<std::optional<std::vector<int64_t>>> Fields::Integers(std::string_view name,
                                                                     size_t most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto is_integer = [](const Json& item) { return IntegerOf(item).has_value(); };
  if (!value->is_array() || value->size() > most || !std::ranges::all_of(*value, is_integer)) {
    return Wrong(name, StrCat("expected a list of ", most, " integers at most, got ", Found(*value),
                              value->is_array() ? StrCat(" of ", value->size()) : ""));
  }
  return value->get<std::vector<int64_t>>();
}

absl::Status Fields::Refuse(std::string_view name, std::string_view why, const Json& harmless) {
  const Json* value = Find(name);
  if (value == nullptr || *value == harmless) return absl::OkStatus();
  return Wrong(name, why);
}

void Fields::Accept(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.insert(std::string(name));
}

std::vector<std::string> Fields::Ignored() const {
  std::vector<std::string> ignored;
  for (const auto& [name, value] : object_->items()) {
    if (!value.is_null() && !read_.contains(name)) ignored.push_back(ParamOf(name));
  }
  return ignored;
}

}  // namespace pagefuse::serve
