// SPDX-License-Identifier: Apache-2.0
// A list of attributes by name, for nodes that passes add.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// {"axis", 1}, {"to", DataType::kFloat}, {"format", "none"}, {"perm", perm}.
struct NamedAttribute {
  template <typename T>
  NamedAttribute(std::string_view of, T value) : name(of) {
    if constexpr (std::is_same_v<T, Attribute>) {
      attribute = std::move(value);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      attribute.value = static_cast<int64_t>(value);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      attribute.value = std::string(std::string_view(value));
    } else {
      attribute.value = std::move(value);
    }
  }

  std::string name;
  Attribute attribute;
};

// A list of them, or those of another node with others in their place or behind them.
class Attributes {
 public:
  Attributes(std::initializer_list<NamedAttribute> named = {}) { Append(named); }
  Attributes(const Node& like,  // NOLINT(google-explicit-constructor)
             std::initializer_list<NamedAttribute> named = {})
      : list_(like.attributes()) {
    Append(named);
  }

  template <typename T>
  void Add(std::string_view name, T value) {
    Append({{name, std::move(value)}});
  }

  void SetOn(Node& node) const {
    for (const auto& [name, attribute] : list_) node.SetAttribute(name, attribute);
  }

 private:
  void Append(std::initializer_list<NamedAttribute> named) {
    for (const NamedAttribute& one : named) list_.emplace_back(one.name, one.attribute);
  }

  std::vector<std::pair<std::string, Attribute>> list_;
};

}  // namespace pagefuse
