// SPDX-License-Identifier: Apache-2.0
// Reduces a model to a smaller one that still fails a check for the same reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

// A model and what it is run on: every sample that the first model was run on, cut as it was.
struct ReduceCase {
  Model model;
  std::vector<std::map<std::string, Tensor>> feeds;  // may be empty where the model does not run
};

// Why the model fails; nothing if it does not.
using ReduceCheck = std::function<std::optional<std::string>(const ReduceCase&)>;

struct ReduceOptions {
  bool any_reason = false;                                // another failure will do too
  int samples = 1;                                        // of made-up inputs
  std::vector<std::map<std::string, Tensor>> feeds = {};  // in place of made-up ones
  // A later form of the model, to go on from where it fails by the same reason: what passes have
  // made shorter already.
  const Model* later = nullptr;
};

struct ReduceSize {
  int64_t nodes = 0, inputs = 0, constant_bytes = 0;
};

struct Reduction {
  ReduceCase smallest;
  ReduceSize before, after;
  int checks = 0;
  std::string reason;
};

// Keeps the model failing while it drops nodes by halves (what they computed becomes an input with
// the numbers that it had), outputs, omissible inputs and constants, makes dims small, and renames
// what is left.
// InvalidArgument if the check does not fail on the whole model.
absl::StatusOr<Reduction> Reduce(const Model& model, const ReduceCheck& check,
                                 const ReduceOptions& options = {});

// The pass pipeline as a check: the first rule that changes numbers, or the error of the pipeline.
ReduceCheck VerifyCheck(const PipelineOptions& options);

// The model as the rewrite of that number finds it.
absl::StatusOr<Model> ModelBefore(const Model& model, const PipelineOptions& options,
                                  int64_t number);

// The number of the first rewrite that changes numbers; nothing where none does or the pipeline
// fails.
std::optional<int64_t> FirstDifference(const Model& model, const PipelineOptions& options);

// `753 nodes -> 1 node, 26 inputs -> 1 input, 1.0 MiB -> 0 bytes of constants`
std::string ReductionText(const Reduction& reduction);

}  // namespace pagefuse
