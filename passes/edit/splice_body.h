// SPDX-License-Identifier: Apache-2.0
// Replaces a node that calls a function, or runs a graph of its own, by the nodes of that body.
#pragma once

#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// For each input and output of a body, which one of the call it is.
struct BodyPorts {
  std::vector<int> inputs, outputs;
};
// The same place in both.
BodyPorts PortsInOrder(const Graph& body);

// Copies the nodes of `body` before `call` and lets the readers of the call's outputs read theirs;
// the call stays, without readers. InvalidArgument if an output of the graph would be an input that
// the call leaves out.
absl::Status SpliceBody(Graph& body, Node& call, const BodyPorts& ports,
                        SymbolicContents& contents);

}  // namespace pagefuse
