// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/model.h"

namespace pagefuse {
namespace {

// A function body has no graph around it.
std::shared_ptr<Graph> Copy(const std::shared_ptr<Graph>& graph) {
  return graph == nullptr ? nullptr : std::shared_ptr<Graph>(graph->Clone());
}

std::string_view Canonical(std::string_view domain) { return domain == "ai.onnx" ? "" : domain; }

}  // namespace

Function::Function() = default;
Function::Function(const Function&) = default;
Function::Function(Function&&) noexcept = default;
Function& Function::operator=(const Function&) = default;
Function& Function::operator=(Function&&) noexcept = default;
Function::~Function() = default;

Model::Model() = default;
Model::Model(const Model&) = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(const Model&) = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

int64_t Model::OpsetVersion(std::string_view domain) const {
  for (const auto& [name, version] : opset_imports) {
    if (Canonical(name) == Canonical(domain)) return version;
  }
  return 0;
}

const Function* Model::FindFunction(std::string_view domain, std::string_view name,
                                    std::string_view overload) const {
  for (const Function& function : functions) {
    if (function.name == name && Canonical(function.domain) == Canonical(domain) &&
        function.overload == overload) {
      return &function;
    }
  }
  return nullptr;
}

Model Model::Clone() const {
  Model copy = *this;
  copy.graph = Copy(graph);
  for (Function& function : copy.functions) {
    function.body = Copy(function.body);
    Graph::ValueMap map;
    for (auto& [name, attribute] : function.defaults) {
      attribute = Graph::CloneAttribute(attribute, nullptr, map);
    }
  }
  return copy;
}

FunctionIndex::FunctionIndex(const std::vector<Function>& functions) {
  for (const Function& function : functions) {
    const Key key(Canonical(function.domain), function.name, function.overload);
    functions_.emplace(key, &function);
  }
}

const Function* FunctionIndex::Find(const Node& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(Key(node.domain(), node.op_type(), node.overload));
  return found == functions_.end() ? nullptr : found->second;
}

}  // namespace pagefuse
