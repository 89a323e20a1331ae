// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/config_json.h"

#include <utility>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;

std::string Shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<ConfigJson> ConfigJson::Read(const std::filesystem::path& path) {
  ConfigJson config;
  config.path_ = path;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return config;
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
  if (IsNestedTooDeeply(text)) {
    return absl::InvalidArgumentError(
        StrCat("\"", path.string(), "\": JSON nested more than ", kMaxJsonDepth, " deep"));
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        StrCat("\"", path.string(), "\": expected a JSON object, got ",
               json.is_discarded() ? std::string("text that is no JSON") : json.type_name()));
  }
  config.object_ = std::move(json);
  return config;
}

const Json& ConfigJson::Value(const char* name) const {
  static const Json kNull;
  const auto found = object_.find(name);
  return found == object_.end() ? kNull : *found;
}

ConfigJson ConfigJson::Member(const char* name) const {
  ConfigJson member;
  member.path_ = path_;
  if (Value(name).is_object()) member.object_ = Value(name);
  return member;
}

absl::Status ConfigJson::Wrong(const char* name, const char* expected) const {
  return absl::InvalidArgumentError(StrCat("\"", path_.string(), "\": ", name, ": expected ",
                                           expected, ", got ", Shown(Value(name))));
}

absl::StatusOr<std::optional<int64_t>> ConfigJson::Positive(const char* name) const {
  const Json& value = Value(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer() || value.get<int64_t>() <= 0) {
    return Wrong(name, "a positive number");
  }
  return value.get<int64_t>();
}

absl::StatusOr<std::optional<double>> ConfigJson::Number(const char* name) const {
  const Json& value = Value(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) return Wrong(name, "a number");
  return value.get<double>();
}

absl::StatusOr<std::optional<bool>> ConfigJson::Flag(const char* name) const {
  const Json& value = Value(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_boolean()) return Wrong(name, "true or false");
  return value.get<bool>();
}

absl::StatusOr<std::optional<std::string>> ConfigJson::Text(const char* name) const {
  const Json& value = Value(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) return Wrong(name, "a string");
  return value.get<std::string>();
}

absl::StatusOr<std::vector<int64_t>> ConfigJson::Tokens(const char* name) const {
  const Json& value = Value(name);
  const Json list = value.is_null() ? Json::array() : value.is_array() ? value : Json{value};
  std::vector<int64_t> tokens;
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0) {
      return absl::InvalidArgumentError(
          StrCat("\"", path_.string(), "\": ", name, ": expected token ids, got ", Shown(item)));
    }
    tokens.push_back(item.get<int64_t>());
  }
  return tokens;
}

}  // namespace pagefuse
