// SPDX-License-Identifier: Apache-2.0
// Tests whether a node, or that which computes a value, is of one of several ops.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// The opset of the vocabulary that graphs are brought to: it has RMSNormalization, RotaryEmbedding,
// Attention, TensorScatter, Swish.
inline constexpr int64_t kCanonicalOpset = 24;

// Whether the node is of one of these ops of a domain, by default ai.onnx.
inline bool IsAnyOf(const Node& node, std::initializer_list<std::string_view> ops,
                    std::string_view domain = "") {
  return node.domain() == domain && std::ranges::find(ops, node.op_type()) != ops.end();
}

// The node of ai.onnx that computes the value, if it is one of that op; else null.
inline const Node* ProducerIf(const Value* value, std::string_view op) {
  const Node* node = value ? value->producer() : nullptr;
  return node && node->Is(op) ? node : nullptr;
}

}  // namespace pagefuse
