#include "tests/models/fused_ops.h"

#include "pagefuse/passes/pipeline.h"

namespace pagefuse {

absl::StatusOr<std::map<std::string, int>> FusedOps(const Model& plain) {
  Model model = plain.Clone();
  const auto report = RunPipeline(model, {});
  if (!report.ok()) return report.status();
  std::map<std::string, int> ops;
  for (const auto& node : model.graph->nodes()) {
    const bool counts = node->domain() == "pagefuse" && !node->Is("Elementwise", "pagefuse");
    if (counts) ++ops[node->op_type()];
  }
  return ops;
}

}  // namespace pagefuse
