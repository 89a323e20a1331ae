// SPDX-License-Identifier: Apache-2.0
// The passes that write what other tools and older opsets know in the ops of one opset.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

std::unique_ptr<Pass> InlineFunctions();
// Chains of elementwise ops become nodes again, which patterns know, and which other runtimes run.
std::unique_ptr<Pass> ExpandElementwise();
std::unique_ptr<Pass> RaiseOpset();
std::unique_ptr<Pass> DecomposeMicrosoftOps();
std::unique_ptr<Pass> DecomposeAddNorm();
std::unique_ptr<Pass> DecomposeSinkAttention();

// Puts bodies in place of the calls of model-local functions, as the pass inline-functions does,
// but all of them: InvalidArgument naming a call whose function means other opsets.
// ResourceExhausted naming the function if that would be too many nodes (ops/registry/function_expansion.h).
absl::Status InlineAllFunctions(Model& model);

// Lets calls in a file that was written for other runtimes name their ops again where those are of
// plug-ins that are loaded; import has done it for ours.
void RestorePluginCalls(Model& model);

// Puts slices, and a Concat, in place of sequences of tensors that are made and read at places which
// constants tell: no op takes a sequence here. True if there were some.
bool SettleSequences(Model& model);

}  // namespace pagefuse
