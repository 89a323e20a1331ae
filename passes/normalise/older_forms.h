// SPDX-License-Identifier: Apache-2.0
// Converts forms that ops of ai.onnx had before the canonical opset, where the newer form says the
// same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// True if a node of ai.onnx says in an opset `to` what it says in `from`.
bool MeansTheSame(const Node& node, int64_t from, int64_t to);

// Why the node's form of that opset cannot be brought to the newest one; nullopt if it can.
std::optional<std::string> ObstacleInForm(const Node& node, int64_t opset);

// Brings a node of the graph from its form of that opset to the newest one; may erase it for others
// in its place.
void RaiseForm(Graph& graph, Node* node, int64_t opset, SymbolicContents& contents);

}  // namespace pagefuse
