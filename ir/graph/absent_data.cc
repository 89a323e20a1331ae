// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/absent_data.h"

#include <string>
#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"

namespace pagefuse {
namespace {

class AbsentData {
 public:
  void Visit(const Graph& graph) {
    for (const Value* value : graph.initializers()) {
      if (IsAbsent(*value->initializer())) Add(StrCat("initializer \"", value->name(), "\""));
    }
    for (const auto& node : graph.nodes()) {
      for (const auto& [name, attribute] : node->attributes()) Visit(*node, name, attribute);
      for (const Graph* subgraph : node->Subgraphs()) Visit(*subgraph);
    }
  }

  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(StrCat(
        first_, count_ == 1 ? "" : StrCat(" and ", count_ - 1, " others"),
        ": the data was left out of the text that the model was read from, or its file is not "
        "there"));
  }

 private:
  void Visit(const Node& node, std::string_view name, const Attribute& attribute) {
    const auto add = [&] { Add(StrCat(node.Description(), ": attribute \"", name, "\"")); };
    if (const auto* tensor = std::get_if<Tensor>(&attribute.value)) {
      if (IsAbsent(*tensor)) add();
    } else if (const auto* tensors = std::get_if<std::vector<Tensor>>(&attribute.value)) {
      for (const Tensor& item : *tensors) {
        if (IsAbsent(item)) add();
      }
    }
  }

  void Add(std::string place) {
    if (count_++ == 0) first_ = std::move(place);
  }

  int64_t count_ = 0;
  std::string first_;
};

}  // namespace

absl::Status CheckDataPresent(const Model& model) {
  AbsentData absent;
  absent.Visit(*model.graph);
  for (const Function& function : model.functions) absent.Visit(*function.body);
  return absent.ToStatus();
}

}  // namespace pagefuse
