// SPDX-License-Identifier: Apache-2.0
// The values of attributes that a node leaves at their default.
#pragma once

#include <optional>
#include <string_view>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The default of an op's attribute; nothing if it has none, or the op has no such attribute.
std::optional<Attribute> DefaultAttribute(const OpDef& op, std::string_view name);
// Gives the node the defaults of the attributes that it leaves out.
void FillDefaults(Node& node, const OpDef& op);

}  // namespace pagefuse
