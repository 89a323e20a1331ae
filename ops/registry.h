// All ops that are known: the built-in list (ops.inc) and those that plug-ins add.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ops/op_def.h"

namespace pagefuse {

// Not thread-safe while ops are added; reading is.
class OpRegistry {
 public:
  // The process-wide registry with all built-in ops.
  static OpRegistry& Global();

  // InvalidArgument if an op of that domain, name and version is there.
  absl::Status Add(OpDef op);
  // The definition with the highest `since` not above `opset`; null if none. "ai.onnx" is "".
  const OpDef* Find(std::string_view domain, std::string_view name, int64_t opset) const;
  // Every definition, sorted by domain, name, version.
  std::vector<const OpDef*> ops() const;

 private:
  std::vector<std::unique_ptr<OpDef>> ops_;  // sorted as ops() tells
  // By domain and name, views of the definitions' own: oldest first. Every pass and every inference
  // asks for each node.
  absl::flat_hash_map<std::pair<std::string_view, std::string_view>, std::vector<const OpDef*>>
      versions_;
};

// Unimplemented, naming the first node whose op, version or type no definition covers and no
// model-local function defines (subgraphs and functions too); ResourceExhausted as CheckExpansion.
// The check that `pagefuse check` makes before it runs anything.
absl::Status VerifyOps(const Model& model, const OpRegistry& registry = OpRegistry::Global());

// The kernel for a node, with the reasons why better ones were refused. Null kernel: run the
// decomposition (or Unimplemented if there is none).
struct KernelChoice {
  const OpDef* op = nullptr;
  const Kernel* kernel = nullptr;
  std::vector<std::string> refusals;  // "hwy: head_dim 72 is not a multiple of 16"
};
// `force`: the name of a kernel to prefer where the op has it ("reference"), empty for the best.
absl::StatusOr<KernelChoice> ChooseKernel(const KernelQuery& query, std::string_view force = "",
                                          const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
