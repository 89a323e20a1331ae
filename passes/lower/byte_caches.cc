// SPDX-License-Identifier: Apache-2.0
// byte-caches: turns float8 caches that are inputs and outputs of the graph into uint8.
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "byte-caches";

// Bytes say no more what they are: attention over float8 queries is told by an attribute.
void NameQueryTypes(const Graph& graph) {
  constexpr const char* kAttribute = "query_type";
  for (const auto& node : graph.nodes()) {
    const Value* query = node->input(0);
    if (!node->Is("PagedAttention", "pagefuse") || query == nullptr ||
        query->dtype() != DataType::kFloat8E4M3FN || node->attribute(kAttribute) != nullptr) {
      continue;
    }
    node->SetAttribute(kAttribute, MakeAttribute(std::string(DataTypeName(query->dtype()))));
  }
}

absl::StatusOr<bool> MakeBytes(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  std::vector<Value*> caches;
  for (Value* input : graph.inputs()) {
    if (input->dtype() == DataType::kFloat8E4M3FN) caches.push_back(input);
  }
  if (caches.empty()) return false;
  NameQueryTypes(graph);
  for (Value* cache : caches) {
    cache->set_dtype(DataType::kUint8);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  // What the ops make of them is uint8 then too.
  for (Value* value : graph.values()) {
    if (value->dtype() == DataType::kFloat8E4M3FN && value->producer() != nullptr) {
      value->set_dtype(DataType::kUndefined);
    }
  }
  PF_RETURN_IF_ERROR(InferShapes(model));
  return true;
}

}  // namespace

std::unique_ptr<Pass> ByteCaches() {
  return MakePass(kName, "Turns float8 caches that are inputs and outputs of the graph into uint8.",
                  MakeBytes);
}

}  // namespace pagefuse
