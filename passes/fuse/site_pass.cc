#include "pagefuse/passes/fuse/site_pass.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {

absl::StatusOr<bool> SitePass::TryAt(Node& node, const GraphScope& scope,
                                     PassContext& context) const {
  const std::string at = node.output(0)->name();
  const absl::Status fused = Fuse(node, scope, context);
  if (fused.ok()) return true;
  if (absl::IsInternal(fused)) return fused;
  if (absl::IsFailedPrecondition(fused)) context.AddMiss(name(), at, StdView(fused.message()), 2);
  return false;
}

absl::StatusOr<bool> SitePass::FuseFirst(const GraphScope& scope, PassContext& context) const {
  for (Node* node : Places(*scope.graph)) {
    PF_ASSIGN_OR_RETURN(const bool fused, TryAt(*node, scope, context));
    if (fused) return true;  // nodes behind it may be gone
  }
  return false;
}

absl::StatusOr<bool> SitePass::Run(Model& model, PassContext& context) const {
  bool changed = false;
  bool again = true;
  while (again) {
    again = false;
    for (const GraphScope& scope : AllGraphs(model)) {
      PF_ASSIGN_OR_RETURN(const bool fused, FuseFirst(scope, context));
      if (!fused) continue;
      PF_RETURN_IF_ERROR(context.Rewrote(model, name()));
      changed = again = true;
    }
  }
  return changed;
}

absl::Status ReplaceSite(
    const ReadSite& read, const FusionPlace& place,
    const std::function<absl::StatusOr<std::vector<Value*>>(Replacement&)>& build) {
  Value* output = read.site.output.value;
  std::vector<Value*> results = {output};
  if (read.sums) results.push_back(read.sums->element.value);
  PF_RETURN_IF_ERROR(ServesOnly(read.reader, results));
  Replacement replacement(*place.scope.graph, *output, place.rule);
  return replacement.Finish(build(replacement), results, *place.scope.opsets,
                            place.context.contents);
}

std::vector<Node*> IntegerChoices(const Graph& graph) {
  std::vector<Node*> nodes = NodesOf(graph);
  std::erase_if(nodes, [](const Node* node) {
    return !node->Is("Where") || IsFloatingPoint(node->output(0)->dtype());
  });
  return nodes;
}

}  // namespace pagefuse
