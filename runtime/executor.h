// SPDX-License-Identifier: Apache-2.0
// Runs a plan step by step: shapes first, then memory, then the kernel. What follows from shapes is
// computed once for consecutive runs with the same shapes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/evaluate/run_limits.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"
#include "pagefuse/runtime/execution_plan.h"
#include "pagefuse/runtime/step_call.h"

namespace pagefuse {

// When and how long a step ran, for profiles.
struct StepTiming {
  int step = 0;
  double start_us = 0;  // since the run began
  double duration_us = 0;
};

// Keeps the arena between runs: sizes grow to the largest seen and the plan of offsets is made anew
// when they do. Keeps large outputs too, and gives their memory to the next run once nobody else
// holds them: memory that is new costs as much as a product, page by page. What it takes counts
// against the thread's budget (ir/tensor/memory_budget.h), ResourceExhausted naming the node where that is
// used up. Not thread-safe.
class Executor {
 public:
  explicit Executor(ExecutionPlan plan, const RunLimits& limits = {});

  // `feeds` by position among the graph inputs; an undefined one takes the input's initialiser.
  // `bound` holds memory for outputs, by position, undefined where the executor allocates. Feeds
  // were checked before; InvalidArgument for one in blocks where the plan does not take them so.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& feeds,
                                          const std::vector<Tensor>& bound);

  const ExecutionPlan& plan() const { return plan_; }
  // By position among the graph inputs: the node of the plan's DenseReader, or null.
  const Node* dense_reader(size_t input) const { return dense_readers_[input]; }
  int64_t arena_bytes() const { return memory_.arena_bytes; }
  // What the last run took for its outputs.
  int64_t output_bytes() const { return output_bytes_; }
  int64_t packed_bytes() const;
  void set_profile(bool on) { profile_ = on; }
  const std::vector<StepTiming>& timings() const { return timings_; }

 private:
  class StepPlacer;
  absl::StatusOr<std::vector<Tensor>> RunSteps();
  absl::Status RunStep(int index);
  absl::Status InferOutputs(const PlannedStep& step, StepCall& call);
  absl::Status TakeInferred(const PlannedStep& step, int out, const ShapeContext::Known& inferred,
                            StepCall& call);
  absl::Status PlaceOutput(const PlannedStep& step, int out, TensorArg& output, int64_t bytes);
  absl::Status PlaceNewOutput(const PlannedStep& step, int out, TensorArg& output, int64_t bytes);
  absl::StatusOr<void*> StorageMemory(int storage, int64_t bytes);
  absl::StatusOr<Tensor> OutputMemory(int value, const TensorArg& output);
  absl::Status RunDecomposition(const PlannedStep& step, KernelArgs& args);
  absl::Status RunBodies(int index);
  absl::Status KeepProduced(const PlannedStep& step, int out, Tensor tensor);
  absl::StatusOr<std::vector<Tensor>> CollectOutputs();
  void TakeTokenRows();
  void LetGo();
  void LearnSizes();

  ExecutionPlan plan_;
  RunLimits limits_;
  int64_t own_body_runs_ = 0;
  int64_t* body_runs_ = &own_body_runs_;  // of the whole run: graphs in graphs count together
  MemoryPlan memory_;
  std::shared_ptr<Buffer> arena_;
  int64_t output_bytes_ = 0;
  std::vector<std::shared_ptr<Buffer>> last_outputs_;  // by value: large memory of the last run
  std::vector<std::vector<std::unique_ptr<Executor>>> bodies_;  // by step
  std::vector<const Node*> dense_readers_;                      // by input
  std::vector<int> output_positions_;    // by value: where it is a graph output first, or -1
  std::vector<std::vector<int>> dying_;  // by step: storages that nothing reads after it
  RunValues values_;
  std::vector<StepCall> calls_;  // by step
  int query_starts_ = -1;        // the input that says which tokens sequences have, by position
  // Of the run in progress.
  std::optional<TokenRows> tokens_;
  std::vector<Tensor> owners_;  // by value: feeds and outputs, what keeps external memory alive
  std::vector<std::shared_ptr<Buffer>> spill_;  // storages that the arena has no room for yet
  const std::vector<Tensor>* bound_ = nullptr;
  Scratch scratch_;
  bool profile_ = false;
  bool grew_ = false;
  std::vector<StepTiming> timings_;
};

}  // namespace pagefuse
