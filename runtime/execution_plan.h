// SPDX-License-Identifier: Apache-2.0
// The decisions that a session makes once: the steps in order, the kernel of each, and which values
// share memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/body_op.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/placing_kernel.h"
#include "pagefuse/runtime/memory_plan.h"

namespace pagefuse {

// How a value gets its memory.
enum class Placement {
  kExternal,  // graph input or constant: the caller's or the model's memory
  kArena,     // storage of the arena
  kOutput,    // graph output: memory of its own, handed to the caller
  kProduced,  // result of a step with bodies: memory that the step makes
  kUploaded,  // what the host knows before the device begins, there: one piece, copied at once
};

// A value in the host's memory or the device's; one that both have is two of these.
struct PlannedValue {
  const Value* value = nullptr;
  bool on_device = false;
  Placement placement = Placement::kExternal;
  int storage = -1;        // kArena: index into storages
  int uploaded_from = -1;  // kUploaded, and no view of another: the value that the host has
  Tensor constant = {};    // of a constant on the device: its copy there
};

struct ExecutionPlan;

// A graph among a node's attributes. Its plan's inputs are those of the graph, then the values
// that the node captures (PlannedStep::captures).
struct PlannedBody {
  const Graph* graph = nullptr;
  std::unique_ptr<ExecutionPlan> plan;
};

enum class StepCopy { kNone, kToDevice, kToHost };

// One node with its kernel, or the copy of a value that a node needs elsewhere than where it is. Values
// are indices into ExecutionPlan::values, -1 where omitted.
struct PlannedStep {
  const Node* node = nullptr;       // of a copy: the one that needs it
  StepCopy copy = StepCopy::kNone;  // then there is no op
  bool on_device = false;           // it runs there, on inputs that are there
  const OpDef* op = nullptr;
  const BodyOp* body_op = nullptr;  // what runs the node's graphs, if it has some and no kernel
  const Kernel* kernel = nullptr;   // null: the node runs its decomposition or its bodies
  int64_t opset = 0;
  std::vector<std::string> refusals;
  std::vector<std::string> device_refusals;  // why the device has no kernel for it
  std::unique_ptr<KernelState> state;
  PlacingKernel* placing = nullptr;  // `state`, where the kernel tells the shapes of its outputs
  std::vector<int> inputs;
  std::vector<int> host_inputs;  // of a step on the device: the same as the host has them, or -1
  std::vector<int> outputs;
  std::vector<PlannedBody> bodies;  // of ops such as If and Loop
  std::vector<int> captures;        // what the bodies read from around them, constants apart
  // By output: the input whose memory it is (a view, an in-place result, an updated cache), or -1.
  std::vector<int> shares_input;
  // By output: shared memory that must be kept apart from a reader elsewhere is copied first.
  std::vector<bool> must_alias;
  bool only_views = false;  // all outputs are inputs under other shapes: there is nothing to run
  // On the host: its outputs follow from the shapes of the graph's inputs.
  bool follows_from_shapes = false;
};

struct ExecutionPlan {
  Allocator* allocator = &HostAllocator();  // of all memory that kernels of the CPU take
  std::shared_ptr<DeviceContext> device;    // null: all is the host's
  std::vector<PlannedValue> values;
  std::vector<PlannedStep> steps;
  // Steps in front of this one run on the host and read nothing of the device. What the device reads of
  // them and of graph inputs is copied there before this one runs.
  int device_begin = 0;
  std::vector<Storage> storages;
  std::vector<int> inputs;   // graph inputs, in order
  std::vector<int> outputs;  // graph outputs, in order
};

struct PlanOptions {
  std::map<std::string, std::string> force_kernel = {};  // op name -> kernel name
  // Takes the kernels of Device::kCuda where there are any; null: all is the host's.
  std::shared_ptr<DeviceContext> device = nullptr;
  std::vector<std::string> device_inputs = {};  // graph inputs that are fed in its memory
  Allocator* allocator = &HostAllocator();      // of the host's memory
  // False: a plan to look at, whose kernels have no state; constants need no data.
  bool runs = true;
};

// The first step that reads a graph input, or an output in its memory, and takes a dense tensor only.
// Null: the input may come in blocks that do not lie one behind the other, as each step has a kernel
// that takes them so (PortSpec::InBlocks).
const PlannedStep* DenseReader(const ExecutionPlan& plan, int input);

// Whether the kernel of a step of the device looks at that input as the host has it (Kernel::host_inputs).
bool LooksAt(const PlannedStep& step, size_t input);

// The step's kernel: "hwy", "cuda on cuda", "decomposition", "graphs", "copy to the device".
std::string NameOfKernel(const PlannedStep& step);

// Plans the model's main graph, whose types and shapes are inferred, and takes over the constants
// that kernels pack (pack_constants.h). Unimplemented naming the first node that nothing can compute.
absl::StatusOr<ExecutionPlan> MakePlan(Model& model, const PlanOptions& options);

}  // namespace pagefuse
