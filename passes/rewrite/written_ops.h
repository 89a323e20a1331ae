// SPDX-License-Identifier: Apache-2.0
// Checks that what a replacement writes exists: its ops, their attributes and ports.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

struct WrittenFault {
  const Node* node = nullptr;
  std::string attribute = {};  // that is wrong, if it is one
  std::string message = {};
};

// The first node of which no version of its op is as it is written; nothing if all are. Of ops of which nothing but their names is
// known (ops/schema/foreign_op.h) any attribute may be written, and any op of a domain that has none here.
std::optional<WrittenFault> FaultOfWritten(const Graph& body);
std::optional<WrittenFault> FaultOfWritten(const Node& node);

// The node of a body, as far as the text names it: from its first output on; the whole text where it does not.
std::string_view PlaceOfNode(const Node& node, std::string_view text);

}  // namespace pagefuse
