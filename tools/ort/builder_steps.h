// SPDX-License-Identifier: Apache-2.0
// Runs steps of graphs that the model builder of ONNX Runtime GenAI exports over caches of blocks,
// with PagedAttention nodes of com.microsoft.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tools/ort/ort_steps.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// True for a graph with the inputs of such an export.
bool IsPagedBuilderExport(const Model& model);

// The prompts of two sequences, then steps of a token each. Runs the model here, as it is.
absl::StatusOr<std::vector<OrtStep>> BuilderSteps(Model model, const StepOptions& options);

}  // namespace pagefuse::tools
