// SPDX-License-Identifier: Apache-2.0
// Makes the inputs on which runtimes are compared: for a paged graph the steps of two sequences,
// for others made-up inputs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {

// One run: inputs as they are before it, and what the outputs are here.
struct OrtStep {
  std::map<std::string, Tensor> feeds;
  std::vector<std::string> output_names;
  std::vector<Tensor> expected;
  // Outputs that are inputs written to, with the input's name: caches.
  std::map<std::string, std::string> in_place;
  double microseconds = 0;  // that the run took here, the fastest
};

struct StepOptions {
  int64_t cache_bytes = 0;  // what all caches take about together; 0: no more than the steps need
  int threads = 0;          // that run them here; 0: all
  int repeats = 1;          // runs of each
};

// Prompts of two sequences: one longer than a block, none of a length that blocks have. Then steps of
// a token each.
inline constexpr int64_t kStepPrompts[] = {21, 6};
inline constexpr int kDecodeSteps = 2;
// Tokens that every model has.
inline constexpr int64_t kAnyVocabulary = 64;
// Any tokens, the same in every run.
std::vector<int64_t> StepTokens(int64_t count, int64_t vocabulary);

// A session that runs a graph as it is.
SessionOptions PlainSession(const StepOptions& options);
// Runs the feeds here, in which caches are written to, and keeps them as they were before.
absl::StatusOr<OrtStep> RecordStep(Session& session, const std::map<std::string, Tensor>& feeds,
                                   int repeats);

// A paged graph: the prompts of two sequences of different lengths, then two steps of a token each.
// A decoder as it was exported: the prompt of one, and two steps.
// Others: runs on made-up inputs of several sizes, those that the graph takes. Runs the model here.
absl::StatusOr<std::vector<OrtStep>> MakeSteps(Model model, const StepOptions& options = {});

// Tensors for one run of a step; what is written in place is a copy.
struct StepMemory {
  std::map<std::string, Tensor> feeds;
  std::map<std::string, Tensor> bound;  // by output; empty without `bind`
};
absl::StatusOr<StepMemory> MemoryOf(const OrtStep& step, bool bind);

}  // namespace pagefuse::tools
