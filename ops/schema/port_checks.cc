// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/port_checks.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/foreign_op.h"

namespace pagefuse {
namespace {

// A graph may have no inputs, and outputs that nobody wants.
bool MayHaveNone(const OpDef& op) { return op.bodies() != nullptr || IsForeign(op); }

// One side of a node against the ports of its op.
absl::Status CheckSide(const Node& node, const OpDef& op, const std::vector<Port>& ports,
                       const std::vector<Value*>& values, const char* what) {
  const int count = static_cast<int>(values.size());
  if (count > 0 && FindPort(ports, count - 1) == nullptr) {
    return absl::InvalidArgumentError(StrCat(node.Description(), ": expected at most ",
                                             ports.size(), " ", what, "s, got ", count));
  }
  for (int i = 0; i < std::max(count, static_cast<int>(ports.size())); ++i) {
    const Port& port = *FindPort(ports, i);
    if (port.kind == PortKind::kOptional || (i < count && values[i] != nullptr)) continue;
    if (port.kind == PortKind::kVariadic && MayHaveNone(op)) continue;
    return MissingPort(node, what, i, port);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MissingPort(const Node& node, const char* what, int i, const Port& port) {
  return absl::InvalidArgumentError(
      StrCat(node.Description(), ": ", what, " ", i, " \"", port.name, "\" is missing"));
}

const Port* FindPort(const std::vector<Port>& ports, int index) {
  if (index < static_cast<int>(ports.size())) return &ports[index];
  if (!ports.empty() && ports.back().kind == PortKind::kVariadic) return &ports.back();
  return nullptr;
}

absl::Status CheckPorts(const Node& node, const OpDef& op) {
  PF_RETURN_IF_ERROR(CheckSide(node, op, op.inputs(), node.inputs(), "input"));
  return CheckSide(node, op, op.outputs(), node.outputs(), "output");
}

}  // namespace pagefuse
