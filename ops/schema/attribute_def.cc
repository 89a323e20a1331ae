// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/attribute_def.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {
namespace {

// The name of the kind of attribute that a default stands for, empty if any kind may be.
const char* KindName(const AttributeDef::Default& value) {
  constexpr const char* kNames[] = {"", "an int", "a float", "a string", "ints", "floats"};
  return kNames[value.index()];
}

bool HasKindOf(const Attribute& attribute, const AttributeDef::Default& kind) {
  switch (kind.index()) {
    case 1:
      return std::holds_alternative<int64_t>(attribute.value);
    case 2:
      return std::holds_alternative<float>(attribute.value);
    case 3:
      return std::holds_alternative<std::string>(attribute.value);
    case 4:
      return std::holds_alternative<std::vector<int64_t>>(attribute.value);
    case 5:
      return std::holds_alternative<std::vector<float>>(attribute.value);
    default:
      return true;
  }
}

// Sums and products of a few sizes then fit in int64. ONNX's own ops are asked for "to the end" by
// the largest number.
absl::Status CheckSize(const ShapeContext& c, const AttributeDef& def, const Attribute& attribute) {
  const auto* value = std::get_if<int64_t>(&attribute.value);
  if (c.node().domain().empty() || value == nullptr) return absl::OkStatus();
  if (*value >= -kMaxElements && (*value <= kMaxElements || def.is_reach)) return absl::OkStatus();
  return c.AttributeError(
      def.name, StrCat("expected ", -kMaxElements, " to ", kMaxElements, ", got ", *value));
}

// One of a few numbers or strings, where the op says which.
absl::Status CheckAllowed(const ShapeContext& c, const AttributeDef& def,
                          const Attribute& attribute) {
  if (!def.names.empty()) {
    const auto* text = std::get_if<std::string>(&attribute.value);
    if (text == nullptr) return c.AttributeError(def.name, "expected a string");
    if (std::find(def.names.begin(), def.names.end(), *text) != def.names.end()) {
      return absl::OkStatus();
    }
    return c.AttributeError(def.name,
                            StrCat("expected ", AllowedValues(def), ", got \"", *text, "\""));
  }
  if (def.numbers.empty() && !def.least) return absl::OkStatus();
  const auto* number = std::get_if<int64_t>(&attribute.value);
  if (number == nullptr) return c.AttributeError(def.name, "expected an int");
  const bool listed = def.numbers.empty() || std::find(def.numbers.begin(), def.numbers.end(),
                                                       *number) != def.numbers.end();
  const bool inside =
      *number >= def.least.value_or(*number) && *number <= def.most.value_or(*number);
  if (listed && inside) return absl::OkStatus();
  return c.AttributeError(def.name, StrCat("expected ", AllowedValues(def), ", got ", *number));
}

// "3, 4 or 8"
template <typename T>
std::string Listed(const std::vector<T>& values) {
  const std::string last = StrCat(values.back());
  const std::string others = absl::StrJoin(values.begin(), values.end() - 1, ", ");
  return others.empty() ? last : StrCat(others, " or ", last);
}

}  // namespace

std::string AllowedValues(const AttributeDef& def) {
  if (!def.names.empty()) return Listed(def.names);
  if (!def.numbers.empty()) return Listed(def.numbers);
  if (!def.least) return "";
  if (!def.most) return StrCat("at least ", *def.least);
  return StrCat(*def.least, *def.most == *def.least + 1 ? " or " : " to ", *def.most);
}

absl::Status CheckAttributes(const ShapeContext& c, const std::vector<AttributeDef>& defs) {
  for (const AttributeDef& def : defs) {
    const Attribute* attribute = c.node().attribute(def.name);
    if (attribute == nullptr) {
      if (def.required) return c.AttributeError(def.name, "is missing");
      continue;
    }
    if (!HasKindOf(*attribute, def.default_value)) {
      return c.AttributeError(def.name, StrCat("expected ", KindName(def.default_value)));
    }
  }
  const bool takes_any = std::any_of(
      defs.begin(), defs.end(), [](const AttributeDef& def) { return def.name == kAnyAttribute; });
  for (const auto& [name, attribute] : c.node().attributes()) {
    const auto def = std::find_if(defs.begin(), defs.end(),
                                  [&name = name](const AttributeDef& d) { return d.name == name; });
    // An attribute that is not understood may change what the node means, so it is not skipped.
    if (def == defs.end() && takes_any) continue;
    if (def == defs.end()) return c.AttributeError(name, "is not an attribute of this op");
    PF_RETURN_IF_ERROR(CheckSize(c, *def, attribute));
    PF_RETURN_IF_ERROR(CheckAllowed(c, *def, attribute));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
