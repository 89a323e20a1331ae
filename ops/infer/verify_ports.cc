// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/verify_ports.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/schema/port_checks.h"

namespace pagefuse {
namespace {

// A node of a version before the op's oldest one.
absl::Status CheckOldPorts(const Node& node, const OpDef& op) {
  // Whose inputs but the first were attributes.
  static constexpr std::string_view kHadAttributes[] = {"Pad", "Reshape", "Slice", "TopK",
                                                        "Unsqueeze"};
  const bool first_only = std::find(std::begin(kHadAttributes), std::end(kHadAttributes),
                                    op.name()) != std::end(kHadAttributes);
  const int inputs = first_only ? 1 : static_cast<int>(op.inputs().size());
  for (int i = 0; i < inputs; ++i) {
    const Port& port = op.inputs()[i];
    if (port.kind == PortKind::kRequired && node.input(i) == nullptr) {
      return MissingPort(node, "input", i, port);
    }
  }
  if (op.outputs().empty() || node.output(0) != nullptr) return absl::OkStatus();
  return MissingPort(node, "output", 0, op.outputs()[0]);
}

class Verifier {
 public:
  Verifier(const Model& model, const OpRegistry& registry)
      : model_(model), functions_(model.functions), registry_(registry) {
    for (const OpDef* op : registry.ops()) oldest_.try_emplace({op->domain(), op->name()}, op);
  }

  absl::Status Run(const Graph& graph, const std::map<std::string, int64_t>& versions) const {
    for (const auto& node : graph.nodes()) {
      PF_RETURN_IF_ERROR(Check(*node, versions));
      for (const Graph* subgraph : node->Subgraphs()) PF_RETURN_IF_ERROR(Run(*subgraph, versions));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Node& node, const std::map<std::string, int64_t>& versions) const {
    const auto it = versions.find(node.domain());
    const int64_t opset = it != versions.end() ? it->second : model_.OpsetVersion(node.domain());
    if (const OpDef* op = registry_.Find(node.domain(), node.op_type(), opset)) {
      return CheckPorts(node, *op);
    }
    if (functions_.Find(node) != nullptr) return absl::OkStatus();
    const auto oldest = oldest_.find({node.domain(), node.op_type()});
    return oldest == oldest_.end() ? absl::OkStatus() : CheckOldPorts(node, *oldest->second);
  }

  const Model& model_;
  const FunctionIndex functions_;
  const OpRegistry& registry_;
  std::map<std::pair<std::string_view, std::string_view>, const OpDef*> oldest_;
};

}  // namespace

absl::Status VerifyPorts(const Model& model, const OpRegistry& registry) {
  const Verifier verifier(model, registry);
  PF_RETURN_IF_ERROR(verifier.Run(*model.graph, model.opset_imports));
  for (const Function& function : model.functions) {
    PF_RETURN_IF_ERROR(verifier.Run(*function.body, function.opset_imports));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
