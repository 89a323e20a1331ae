// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/schema_node.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr std::string_view kConstraints[] = {"type",
                                             "properties",
                                             "required",
                                             "additionalProperties",
                                             "items",
                                             "prefixItems",
                                             "minItems",
                                             "maxItems",
                                             "enum",
                                             "const",
                                             "anyOf",
                                             "allOf",
                                             "$ref",
                                             "minLength",
                                             "maxLength",
                                             "pattern",
                                             "format",
                                             "minimum",
                                             "maximum",
                                             "exclusiveMinimum",
                                             "exclusiveMaximum"};
constexpr std::string_view kSaysNothing[] = {
    "title",      "description", "default",   "examples", "$schema", "$id",        "$comment",
    "deprecated", "readOnly",    "writeOnly", "strict",   "$defs",   "definitions"};

bool SaysNothing(std::string_view keyword) {
  return keyword.starts_with("x-") || std::find(std::begin(kSaysNothing), std::end(kSaysNothing),
                                                keyword) != std::end(kSaysNothing);
}

// The value as in messages, shortened.
std::string ShownJson(const SchemaJson& value) {
  constexpr size_t kMost = 60;
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, SchemaJson::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

std::string UnescapedStep(std::string_view step) {
  std::string name;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1')) {
      name.push_back(step[++i] == '0' ? '~' : '/');
    } else {
      name.push_back(step[i]);
    }
  }
  return name;
}

const SchemaJson* SchemaMember(const SchemaJson& json, const std::string& name) {
  if (json.is_object()) {
    const auto found = json.find(name);
    return found == json.end() ? nullptr : &*found;
  }
  if (!json.is_array() || name.empty() || name.size() > 6 ||
      name.find_first_not_of("0123456789") != std::string::npos) {
    return nullptr;
  }
  const size_t index = std::stoul(name);
  return index < json.size() ? &json[index] : nullptr;
}

}  // namespace

SchemaNode SchemaNode::Child(std::string_view name, const SchemaJson& child) const {
  return {&child, pointer + PointerStep(name), depth + 1};
}

absl::Status SchemaNode::Wrong(std::string_view keyword, std::string_view expected) const {
  const auto found = json->find(std::string(keyword));
  return absl::InvalidArgumentError(
      StrCat(pointer, PointerStep(keyword), ": expected ", expected, ", got ",
             found == json->end() ? std::string("none") : ShownJson(*found)));
}

absl::Status SchemaNode::Error(std::string_view message) const {
  return absl::InvalidArgumentError(
      StrCat(pointer.empty() ? std::string("the schema") : pointer, ": ", message));
}

absl::StatusOr<uint32_t> SchemaNode::Count(const char* keyword, uint32_t otherwise) const {
  if (!Has(keyword)) return otherwise;
  const SchemaJson& value = (*json)[keyword];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number != std::floor(number)) {
    return Wrong(keyword, "a whole number that is not negative");
  }
  // Larger ones are bounds that no answer comes to.
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  return number >= kMost ? kMost : static_cast<uint32_t>(number);
}

absl::StatusOr<std::string> SchemaNode::Text(const char* keyword) const {
  const SchemaJson& value = (*json)[keyword];
  if (!value.is_string()) return Wrong(keyword, "a string");
  return value.get<std::string>();
}

std::string PointerStep(std::string_view name) {
  std::string step = "/";
  for (const char c : name) {
    if (c == '~') {
      step += "~0";
    } else if (c == '/') {
      step += "~1";
    } else {
      step.push_back(c);
    }
  }
  return step;
}

absl::StatusOr<SchemaNode> ResolveSchema(const SchemaJson& root, const SchemaNode& referring) {
  const SchemaJson& value = referring["$ref"];
  const std::string ref = value.is_string() ? value.get<std::string>() : "";
  if (ref != "#" && !ref.starts_with("#/")) {
    return referring.Wrong("$ref", "\"#\" or a pointer that begins with \"#/\"");
  }
  SchemaNode node{&root, "", 0};
  std::string_view rest = std::string_view(ref).substr(1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::string name = UnescapedStep(rest.substr(1, end - 1));
    rest.remove_prefix(end);
    node.json = SchemaMember(*node.json, name);
    if (node.json == nullptr) return referring.Wrong("$ref", "a pointer to a part of the schema");
    node.pointer += PointerStep(name);
  }
  return node;
}

absl::Status CheckKeywords(const SchemaNode& node) {
  for (const auto& [keyword, value] : node.json->items()) {
    if (SaysNothing(keyword)) continue;
    if (std::find(std::begin(kConstraints), std::end(kConstraints), keyword) !=
        std::end(kConstraints)) {
      continue;
    }
    return absl::InvalidArgumentError(StrCat(node.pointer, PointerStep(keyword),
                                             ": expected a keyword of the supported subset, got \"",
                                             keyword, "\""));
  }
  return absl::OkStatus();
}

std::optional<std::string> OtherKeyword(const SchemaNode& node,
                                        std::initializer_list<std::string_view> but) {
  for (const auto& [keyword, value] : node.json->items()) {
    if (!SaysNothing(keyword) && std::find(but.begin(), but.end(), keyword) == but.end()) {
      return keyword;
    }
  }
  return std::nullopt;
}

}  // namespace pagefuse
