// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/function_body.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefuse {
namespace {

const Attribute* FindDefault(const Function& function, std::string_view name) {
  for (const auto& [key, attribute] : function.defaults) {
    if (key == name) return &attribute;
  }
  return nullptr;
}

void Resolve(Graph& graph, const Function& function, const Node& caller) {
  for (const auto& node : graph.nodes()) {
    std::vector<std::pair<std::string, std::string>> references;
    for (const auto& [name, attribute] : node->attributes()) {
      if (const auto* reference = std::get_if<AttributeRef>(&attribute.value)) {
        references.emplace_back(name, reference->name);
      }
    }
    for (const auto& [name, source] : references) {
      const Attribute* value = caller.attribute(source);
      if (value == nullptr) value = FindDefault(function, source);
      if (value != nullptr) {
        node->SetAttribute(name, *value);
      } else {
        node->RemoveAttribute(name);
      }
    }
    for (Graph* subgraph : node->Subgraphs()) Resolve(*subgraph, function, caller);
  }
}

}  // namespace

std::unique_ptr<Graph> InstantiateBody(const Function& function, const Node& caller) {
  std::unique_ptr<Graph> body = function.body->Clone();
  Resolve(*body, function, caller);
  return body;
}

}  // namespace pagefuse
