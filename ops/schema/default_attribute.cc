// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/default_attribute.h"

#include <type_traits>
#include <variant>

namespace pagefuse {

std::optional<Attribute> DefaultAttribute(const OpDef& op, std::string_view name) {
  for (const AttributeDef& def : op.attributes()) {
    if (def.name != name) continue;
    return std::visit(
        [](const auto& value) -> std::optional<Attribute> {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            return std::nullopt;
          } else {
            return Attribute{value};
          }
        },
        def.default_value);
  }
  return std::nullopt;
}

void FillDefaults(Node& node, const OpDef& op) {
  for (const AttributeDef& def : op.attributes()) {
    if (node.attribute(def.name) != nullptr) continue;
    if (auto value = DefaultAttribute(op, def.name)) node.SetAttribute(def.name, *std::move(value));
  }
}

}  // namespace pagefuse
