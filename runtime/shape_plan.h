// SPDX-License-Identifier: Apache-2.0
// What an executor knows of runs whose inputs have certain shapes, so that the next one infers nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "pagefuse/base/device.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/runtime/execution_plan.h"
#include "pagefuse/runtime/step_call.h"

namespace pagefuse {

// Kernels and copies of one run on the device, and what has to be the same so that they are those of another.
struct CapturedRun {
  std::unique_ptr<DeviceGraph> graph;
  int64_t memory = 0;                // Executor::MemoryChanges
  std::vector<const void*> feeds;    // by input that the device has: where it lies
  std::vector<const void*> outputs;  // by output that has memory of its own: where
  std::vector<int> output_feeds;     // by output that is an updated feed: the input; else -1
  std::vector<std::vector<std::byte>>
      host_data;             // that kernels looked at, of one step after the other
  std::vector<int> checked;  // steps whose values are looked at: others look at the same
};

struct ShapePlan {
  // Of the inputs, in order: what tells two plans apart.
  struct Form {
    DataType dtype = DataType::kUndefined;
    std::vector<int64_t> dims;
    int64_t block_stride = 0;
    bool operator==(const Form&) const = default;
  };

  explicit ShapePlan(const ExecutionPlan& plan);

  std::vector<Form> inputs;
  RunValues values;
  std::vector<StepCall> calls;  // by step

  // What the device was asked for by a run with these shapes, once it is captured.
  std::unique_ptr<CapturedRun> captured;
  bool is_settled = false;  // the last run found all memory that it needed
  int misses = 0;           // runs that what was captured did not fit
};

// The plans of the last shapes: steps of a decoder come with the same numbers of tokens and sequences again and again, by
// turns with pieces of prompts. Not thread-safe.
class ShapePlans {
 public:
  explicit ShapePlans(size_t most) : most_(most) {}

  // The plan for these inputs, which are those of the graph in order; a new one takes the place of the one that was not asked
  // for longest. Valid until the next call.
  ShapePlan& Find(const ExecutionPlan& plan, const std::vector<Tensor>& inputs);
  size_t size() const { return plans_.size(); }

 private:
  size_t most_;
  std::list<ShapePlan> plans_;  // the last one first
};

}  // namespace pagefuse
