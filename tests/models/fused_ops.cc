// SPDX-License-Identifier: Apache-2.0
#include "tests/models/fused_ops.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

absl::StatusOr<Ending> EndOf(const Model& plain) {
  Model model = plain.Clone();
  PF_ASSIGN_OR_RETURN(const auto report, RunPipeline(model, {}));
  Ending ending;
  ending.why_not_paged = report.why_not_paged;
  for (const auto& node : model.graph->nodes()) {
    const bool counts = node->domain() == "pagefuse" && !node->Is("Elementwise", "pagefuse");
    if (counts) ++ending.ops[node->op_type()];
  }
  return ending;
}

absl::StatusOr<std::map<std::string, int>> FusedOps(const Model& plain) {
  PF_ASSIGN_OR_RETURN(Ending ending, EndOf(plain));
  return std::move(ending.ops);
}

}  // namespace pagefuse
