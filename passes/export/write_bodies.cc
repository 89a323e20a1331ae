// write-bodies: a fused op is a call of a function that says what it computes, so that a runtime
// which does not have the op runs its body.
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/body_domains.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/export/call_bodies.h"
#include "pagefuse/passes/export/export.h"
#include "pagefuse/passes/export/scatter_in_place.h"
#include "pagefuse/passes/graph_edit.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "write-bodies";

// Two inserts into one cache, one behind the other: a runtime copies the cache for the first of
// them, or writes into what its caller gave.
absl::Status CheckOneWriter(const Node& node, const OpDef& op) {
  for (const auto& [output, input] : op.aliases()) {
    const Value* cache = node.input(input);
    if (cache == nullptr || cache->producer() == nullptr) continue;
    return absl::FailedPreconditionError(
        StrCat(node.Description(), ": input ", input, " \"", cache->name(),
               "\": expected a cache as it comes into the graph, got the one that ",
               cache->producer()->Description(), " wrote: a file has one writer for each cache"));
  }
  return absl::OkStatus();
}

class WriteBodiesPass : public Pass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Writes a model-local function for every distinct body of a fused op.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    // Written before.
    for (const Function& function : model.functions) {
      if (function.domain == kFusedDomain) return false;
    }
    CallBodies bodies(model, kFusedDomain);
    bool changed = false;
    for (const GraphScope& scope : AllGraphs(model)) {
      for (Node* node : NodesOf(*scope.graph)) {
        if (node->domain() != kFusedDomain) continue;
        const OpDef* op = FindOpDef(*node, *scope.opsets);
        if (op == nullptr || !op->has_decomposition()) {
          context.AddMiss(kName, NodeLabel(*node), StrCat(node->Description(), " has no body"));
          continue;
        }
        PF_RETURN_IF_ERROR(CheckOneWriter(*node, *op));
        PF_RETURN_IF_ERROR(bodies.Add(node, *op).status());
        PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
        changed = true;
      }
    }
    if (!changed) return false;
    for (Function& function : model.functions) ScatterInPlace(*function.body);
    return true;
  }
};

}  // namespace

std::unique_ptr<Pass> WriteBodies() { return std::make_unique<WriteBodiesPass>(); }

}  // namespace pagefuse
