// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/normalise/decompose.h"

#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/ops/schema/function_body.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/passes/edit/splice_body.h"

namespace pagefuse {
namespace {

// A body lists the ports that it uses, by name.
BodyPorts PortsByName(const Graph& body, const OpDef& op) {
  BodyPorts ports;
  for (const Value* input : body.inputs()) {
    ports.inputs.push_back(PlaceOf(op.inputs(), input->name()));
  }
  for (const Value* output : body.outputs()) {
    ports.outputs.push_back(PlaceOf(op.outputs(), output->name()));
  }
  return ports;
}

}  // namespace

absl::Status Decompose(Node* node, const OpsetImports& opsets, SymbolicContents& contents) {
  const OpDef* op = FindOpDef(*node, opsets);
  if (!op) return absl::FailedPreconditionError("its version is not known");
  PF_ASSIGN_OR_RETURN(const std::string text, op->Decompose(*node));
  PF_ASSIGN_OR_RETURN(Function function, ParseFunction(text));
  FillDefaults(*node, *op);
  const std::unique_ptr<Graph> body = InstantiateBody(function, *node);
  PF_RETURN_IF_ERROR(SpliceBody(*body, *node, PortsByName(*body, *op), contents));
  node->graph()->EraseNode(node);
  return absl::OkStatus();
}

absl::StatusOr<bool> DecomposeNodes(Model& model, PassContext& context, std::string_view pass,
                                    bool (*takes)(const Node&),
                                    const std::function<absl::Status(Node*)>& decompose) {
  bool changed = false;
  for (Node* node : NodesOf(*model.graph)) {
    if (!takes(*node)) continue;
    const std::string at = NodeLabel(*node);
    const absl::Status done = decompose(node);
    if (!done.ok()) {
      context.AddMissedMatch(pass, at, StdView(done.message()));
      continue;
    }
    PF_RETURN_IF_ERROR(context.Rewrote(model, pass));
    changed = true;
  }
  return changed;
}

}  // namespace pagefuse
