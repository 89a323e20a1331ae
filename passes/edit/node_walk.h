// SPDX-License-Identifier: Apache-2.0
// Walks a short way from a node, through nodes that carry a value on.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

using OpTypes = std::initializer_list<std::string_view>;
using NodeTest = std::function<bool(const Node&)>;

// Passes nodes of that op.
inline NodeTest Is(std::string_view op, std::string_view domain = "") {
  return [op, domain](const Node& node) { return node.Is(op, domain); };
}

// Among the op types, whatever the domain.
bool IsOneOf(const Node& node, const OpTypes& types);

// The nearest node above `value` (its producer first) that passes, through nodes of these types
// alone and at most `steps` of them; null if there is none.
const Node* Above(const Value* value, const NodeTest& passes, const OpTypes& through, int steps);
// The same below `node`, itself not counted.
const Node* Below(const Node& node, const NodeTest& passes, const OpTypes& through, int steps);

// The graph input that `value` is read from through nodes of these types, by their first inputs;
// null if it is none.
const Value* InputAbove(const Value* value, const OpTypes& through);
// True if `value`, or what nodes of these types make of it, is an output of the graph.
bool ReachesOutput(const Value* value, const OpTypes& through, int steps);

// `node` and what reads it within so many steps.
std::vector<const Node*> Ahead(const Node& node, int steps);

}  // namespace pagefuse
