// SPDX-License-Identifier: Apache-2.0
// That a node has the inputs and outputs which its op requires.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The place of what has a name in a list of ports, attributes or sizes; -1 if nothing has it.
template <typename Named>
int PlaceOf(const std::vector<Named>& list, std::string_view name) {
  const auto at = std::ranges::find(list, name, &Named::name);
  return at == list.end() ? -1 : static_cast<int>(at - list.begin());
}

// The port of input (output) `index`, null past the end; a variadic last port takes the rest.
const Port* FindPort(const std::vector<Port>& ports, int index);

// InvalidArgument if the node leaves out an input or output that the op requires, or has too many.
absl::Status CheckPorts(const Node& node, const OpDef& op);

// InvalidArgument saying that input or output `i`, as `what` says, is missing.
absl::Status MissingPort(const Node& node, const char* what, int i, const Port& port);

}  // namespace pagefuse
