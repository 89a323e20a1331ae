// The passes that fuse what they read by element, one place at a time.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Tries each place of each graph, and all of them again when one has been fused, until none is.
class SitePass : public Pass {
 public:
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const final;

 private:
  // Where it is worth a look.
  virtual std::vector<Node*> Places(const Graph& graph) const = 0;
  // Fuses what `node` ends. FailedPrecondition: why it is left, which the pass notes; Internal: the
  // graph is broken; others: it is nothing for this pass.
  virtual absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) const = 0;

  // Whether they fused something.
  absl::StatusOr<bool> TryAt(Node& node, const GraphScope& scope, PassContext& context) const;
  absl::StatusOr<bool> FuseFirst(const GraphScope& scope, PassContext& context) const;
};

// Choices between integers: where lists of slots and of columns end.
std::vector<Node*> IntegerChoices(const Graph& graph);

}  // namespace pagefuse
