// The stage canonicalise: one spelling for what exporters write in many.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// The opset of the vocabulary that graphs are brought to: it has RMSNormalization, RotaryEmbedding,
// Attention, TensorScatter, Swish.
inline constexpr int64_t kCanonicalOpset = 24;

std::unique_ptr<Pass> InlineFunctions();
std::unique_ptr<Pass> RaiseOpset();
std::unique_ptr<Pass> WriteOutMicrosoftOps();
std::unique_ptr<Pass> WriteOutSinkAttention();
std::unique_ptr<Pass> ConstantFolding();
std::unique_ptr<Pass> ConstantViews();
std::unique_ptr<Pass> GatherCutRows();
std::unique_ptr<Pass> SimplifyCasts();
std::unique_ptr<Pass> SimplifyShapes();
std::unique_ptr<Pass> SimplifyArithmetic();
std::unique_ptr<Pass> SimplifyProducts();
std::unique_ptr<Pass> Cse();
std::unique_ptr<Pass> DeadCode();

// Erases the nodes that nothing uses, those of subgraphs too; true if there were any.
bool EraseDeadNodes(Graph& graph, SymbolicContents& contents);

// The passes that make sense for a pattern, until nothing changes. Shapes that cannot be inferred
// stay unknown.
absl::Status CanonicalisePattern(Model& model);

}  // namespace pagefuse
