// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/cache_branch.h"

#include "absl/strings/match.h"

#include "pagefuse/passes/edit/graph_ports.h"

namespace pagefuse {

bool IsCacheBranch(const Value& input) {
  if (input.dtype() != DataType::kBool || input.initializer() || !input.shape()) return false;
  const Shape& shape = *input.shape();
  const bool one = shape.empty() || (shape.rank() == 1 && shape[0].constant().value_or(1) == 1);
  return one && absl::StrContains(input.name(), "use_cache");
}

bool TakeCacheBranch(Model& model) {
  Graph& graph = *model.graph;
  bool any = false;
  const std::vector<Value*> inputs = graph.inputs();
  for (Value* input : inputs) {
    if (!IsCacheBranch(*input) || input->is_output()) continue;
    any = true;
    const std::vector<int64_t> dims(input->shape()->rank(), 1);
    Value* always =
        graph.AddInitializer(graph.UniqueName(input->name()), Tensor::Of<bool>(dims, {true}));
    graph.ReplaceAllUses(input, always);
    RemoveInput(graph, input);
    graph.EraseValue(input);
  }
  return any;
}

}  // namespace pagefuse
