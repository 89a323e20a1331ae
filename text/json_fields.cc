// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/json_fields.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string Shown(const nlohmann::json& value) {
  constexpr size_t kMost = 80;
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

absl::Status Flatten(const JsonFields& part, const char* list, std::vector<JsonFields>& out) {
  PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
  if (type != "Sequence") {
    out.push_back(part);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const std::vector<JsonFields> parts, part.Objects(list));
  for (const JsonFields& inner : parts) PF_RETURN_IF_ERROR(Flatten(inner, list, out));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JsonFields> JsonFields::Of(const Json& object, std::string place) {
  if (object.is_object()) return JsonFields(object, std::move(place));
  return absl::InvalidArgumentError(StrCat(place, ": expected an object, got ", Shown(object)));
}

const JsonFields::Json& JsonFields::Member(const char* name) const {
  static const Json kNull;
  const auto found = object_->find(name);
  return found == object_->end() ? kNull : *found;
}

bool JsonFields::Has(const char* name) const { return !Member(name).is_null(); }

absl::Status JsonFields::Wrong(const char* name, std::string_view expected) const {
  return absl::InvalidArgumentError(
      StrCat(place_, ".", name, ": expected ", expected, ", got ", Shown(Member(name))));
}

absl::Status JsonFields::UnknownType(std::string_view known) const {
  return absl::UnimplementedError(
      StrCat(place_, ".type: expected one of ", known, ", got ", Shown(Member("type"))));
}

absl::StatusOr<std::string> JsonFields::Text(const char* name) const {
  const Json& value = Member(name);
  if (!value.is_string()) return Wrong(name, "a string");
  return value.get<std::string>();
}

absl::StatusOr<bool> JsonFields::Flag(const char* name, bool otherwise) const {
  const Json& value = Member(name);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) return Wrong(name, "true or false");
  return value.get<bool>();
}

absl::StatusOr<int64_t> JsonFields::Number(const char* name, int64_t otherwise) const {
  const Json& value = Member(name);
  if (value.is_null()) return otherwise;
  if (!value.is_number_integer()) return Wrong(name, "an integer");
  return value.get<int64_t>();
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Numbers(const char* name) const {
  const Json& list = Member(name);
  if (!list.is_array()) return Wrong(name, "a list of integers");
  std::vector<int64_t> numbers;
  for (const Json& item : list) {
    if (!item.is_number_integer()) return Wrong(name, "a list of integers");
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

absl::StatusOr<JsonFields> JsonFields::Object(const char* name) const {
  return Of(Member(name), StrCat(place_, ".", name));
}

absl::StatusOr<std::vector<JsonFields>> JsonFields::Objects(const char* name) const {
  const Json& list = Member(name);
  if (!list.is_array()) return Wrong(name, "a list");
  std::vector<JsonFields> objects;
  for (size_t i = 0; i < list.size(); ++i) {
    PF_ASSIGN_OR_RETURN(JsonFields object, Of(list[i], StrCat(place_, ".", name, "[", i, "]")));
    objects.push_back(std::move(object));
  }
  return objects;
}

absl::StatusOr<std::vector<JsonFields>> SequenceOf(const nlohmann::json& object, std::string place,
                                                   const char* list) {
  std::vector<JsonFields> parts;
  if (object.is_null()) return parts;
  PF_ASSIGN_OR_RETURN(const JsonFields whole, JsonFields::Of(object, std::move(place)));
  PF_RETURN_IF_ERROR(Flatten(whole, list, parts));
  return parts;
}

}  // namespace pagefuse
