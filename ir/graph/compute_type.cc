// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/compute_type.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_set.h"

namespace pagefuse {
namespace {

constexpr std::array kCoarsestFirst = {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat,
                                       DataType::kDouble};

DataType CoarserOf(DataType a, DataType b) {
  for (const DataType type : kCoarsestFirst) {
    if (a == type || b == type) return type;
  }
  return DataType::kUndefined;
}

// What is not computed from constants alone. Nodes come in topological order.
using Varying = absl::flat_hash_set<const Value*>;

bool Varies(const Node& node, const Varying& varying) {
  if (!node.Subgraphs().empty()) return true;
  return std::any_of(node.inputs().begin(), node.inputs().end(),
                     [&](const Value* input) { return varying.contains(input); });
}

DataType TypeOf(const Graph& graph, Varying& varying) {
  for (const Value* input : graph.inputs()) {
    if (input->initializer() == nullptr) varying.insert(input);
  }
  DataType type = DataType::kUndefined;
  for (const auto& node : graph.nodes()) {
    for (const Graph* subgraph : node->Subgraphs()) {
      type = CoarserOf(type, TypeOf(*subgraph, varying));
    }
    if (!Varies(*node, varying)) continue;
    for (const Value* output : node->outputs()) {
      if (output == nullptr) continue;
      varying.insert(output);
      type = CoarserOf(type, output->dtype());
    }
  }
  return type;
}

}  // namespace

DataType ComputeType(const Graph& graph) {
  Varying varying;
  return TypeOf(graph, varying);
}

}  // namespace pagefuse
