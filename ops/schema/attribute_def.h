// SPDX-License-Identifier: Apache-2.0
// The declaration of an attribute of an op.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace pagefuse {

class ShapeContext;

struct AttributeDef {
  using Default = std::variant<std::monostate, int64_t, float, std::string, std::vector<int64_t>,
                               std::vector<float>>;
  std::string name;
  Default default_value;  // monostate: required, or no default (see doc)
  bool required = false;
  std::string doc;
  bool is_reach = false;  // a distance with no largest number, see OpDef::ReachAttr
  // What values it may have; nothing said: any.
  std::optional<int64_t> least = {}, most = {};
  std::vector<std::string> names = {};
  std::vector<int64_t> numbers = {};
};

// "1 to 64", "fp8 or mxfp4"; empty where any value is allowed.
std::string AllowedValues(const AttributeDef& def);

// Kinds and values of a node's attributes. InvalidArgument naming node and attribute.
absl::Status CheckAttributes(const ShapeContext& c, const std::vector<AttributeDef>& defs);

}  // namespace pagefuse
