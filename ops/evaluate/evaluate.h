// SPDX-License-Identifier: Apache-2.0
// Evaluates nodes and graphs on tensors, simply rather than fast: the oracle of tests, constant
// folding and --verify.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/evaluate/run_limits.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// Of ai.onnx: what bodies without a header mean, the newest version of every op that is known.
inline constexpr int64_t kNewestOpset = 28;

struct EvaluateOptions {
  std::string force_kernel = {};  // "reference" for the definition, empty for the best kernel
  bool decompose = false;         // run decompositions instead of kernels where an op has one
  RunLimits limits = {};
};

// Runs one node. `inputs` has one tensor an input (undefined where omitted). Aliased outputs are
// copies: inputs stay unchanged.
absl::StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node, int64_t opset,
                                                 const std::vector<Tensor>& inputs,
                                                 const EvaluateOptions& options = {});

// Runs a model on feeds by input name; returns the outputs in order. Model-local functions run as
// their bodies where no op is registered. Initialisers that are inputs may be omitted from the
// feeds.
absl::StatusOr<std::vector<Tensor>> EvaluateModel(const Model& model,
                                                  const std::map<std::string, Tensor>& feeds,
                                                  const EvaluateOptions& options = {});

// Runs a function body with the attributes of `caller` (its `@name` references) on the given
// inputs.
absl::StatusOr<std::vector<Tensor>> EvaluateFunction(const Function& function, const Node& caller,
                                                     const std::vector<Tensor>& inputs,
                                                     const EvaluateOptions& options = {});

// Runs a node whose attributes are graphs (OpDef::bodies) that read nothing from around them.
absl::StatusOr<std::vector<Tensor>> EvaluateBodies(const Node& node, const BodyOp& op,
                                                   int64_t opset, const std::vector<Tensor>& inputs,
                                                   const EvaluateOptions& options = {});

}  // namespace pagefuse
