// SPDX-License-Identifier: Apache-2.0
// A part of a JSON schema and where it stands; errors name the place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse {

using SchemaJson = nlohmann::ordered_json;

struct SchemaNode {
  const SchemaJson* json = nullptr;
  std::string pointer;  // "" is the whole schema
  int depth = 0;        // schemas around it

  bool Has(const char* keyword) const { return json->is_object() && json->contains(keyword); }
  const SchemaJson& operator[](const char* keyword) const { return (*json)[keyword]; }
  // A member or element, one schema deeper.
  SchemaNode Child(std::string_view name, const SchemaJson& child) const;

  // "<pointer>/<keyword>: expected <what>, got <the value>".
  absl::Status Wrong(std::string_view keyword, std::string_view expected) const;
  // "<pointer>: <message>".
  absl::Status Error(std::string_view message) const;

  // Whole numbers that are not negative.
  absl::StatusOr<uint32_t> Count(const char* keyword, uint32_t otherwise) const;
  absl::StatusOr<std::string> Text(const char* keyword) const;
};

// "/name", where "~" and "/" in the name are escaped.
std::string PointerStep(std::string_view name);
// What a reference "#" or "#/..." points to, and its pointer.
absl::StatusOr<SchemaNode> ResolveSchema(const SchemaJson& root, const SchemaNode& referring);
// InvalidArgument for a keyword that would constrain and is not known.
absl::Status CheckKeywords(const SchemaNode& node);
// The node says something beside annotations, definitions and these keywords: the first of those.
std::optional<std::string> OtherKeyword(const SchemaNode& node,
                                        std::initializer_list<std::string_view> but);

}  // namespace pagefuse
