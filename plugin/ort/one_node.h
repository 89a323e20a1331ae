// SPDX-License-Identifier: Apache-2.0
// Makes a graph of ours that holds a single node of the host.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::ort {

// What a host says of a node when it loads a graph.
struct NodeSpec {
  struct Port {
    std::string name;
    DataType dtype = DataType::kUndefined;  // omitted
    Tensor constant = {};                   // undefined where the host computes it
    std::optional<Shape> shape = {};        // as far as the graph declares it
  };
  std::string name;
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<Port> inputs, outputs;
};

// The node with its values; types and shapes of the outputs are inferred.
class OneNode {
 public:
  // `shapes`: of the inputs, nullopt where the rank is unknown.
  absl::Status Build(const OpDef& op, const NodeSpec& spec,
                     const std::vector<std::optional<Shape>>& shapes);

  const Node& node() const { return *node_; }

 private:
  Graph graph_;
  Node* node_ = nullptr;
};

}  // namespace pagefuse::ort
