// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/execution_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/runtime/device_placement.h"
#include "pagefuse/runtime/pack_constants.h"

namespace pagefuse {
namespace {

// Builds a plan in two walks: steps with their kernels, then memory.
class Planner {
 public:
  // `is_body`: the graph is an attribute of a node, and its inputs must not be written.
  Planner(const Model& model, const PlanOptions& options, bool is_body = false)
      : model_(model), options_(options), is_body_(is_body) {
    plan_.allocator = options.allocator;
    if (!is_body) plan_.device = options.device;
  }

  absl::StatusOr<ExecutionPlan> Run(const Graph& graph, const std::vector<Value*>& captures) {
    for (Value* input : graph.inputs()) plan_.inputs.push_back(Index(input));
    for (Value* capture : captures) plan_.inputs.push_back(Index(capture));
    for (Value* constant : graph.initializers()) Index(constant);
    for (const auto& node : graph.nodes()) PF_RETURN_IF_ERROR(AddStep(*node));
    for (Value* output : graph.outputs()) plan_.outputs.push_back(Index(output));
    if (plan_.device != nullptr) {
      for (PlannedValue& value : plan_.values) {
        value.on_device = std::ranges::count(options_.device_inputs, value.value->name()) > 0;
      }
      PF_RETURN_IF_ERROR(PlaceOnDevice(plan_, [this](PlannedStep& step) -> absl::Status {
        const KernelQuery query = QueryOf(step);
        PF_RETURN_IF_ERROR(ChooseOnHost(query, step));
        return Prepare(query, step);
      }));
    }
    FindLastReads();
    for (int step = 0; step < static_cast<int>(plan_.steps.size()); ++step) PlaceOutputs(step);
    ExtendLifetimes();
    return std::move(plan_);
  }

 private:
  int Index(const Value* value) {
    auto [it, added] = index_.try_emplace(value, static_cast<int>(plan_.values.size()));
    if (added) plan_.values.push_back({.value = value});
    return it->second;
  }

  absl::Status AddStep(const Node& node) {
    PlannedStep step;
    step.node = &node;
    step.opset = model_.OpsetVersion(node.domain());
    KernelQuery query = QueryOf(step);
    PF_RETURN_IF_ERROR(Choose(query, step));
    PF_RETURN_IF_ERROR(Prepare(query, step));
    for (Value* input : node.inputs()) step.inputs.push_back(input ? Index(input) : -1);
    for (Value* output : node.outputs()) step.outputs.push_back(output ? Index(output) : -1);
    step.shares_input.assign(step.outputs.size(), -1);
    step.must_alias.assign(step.outputs.size(), false);
    if (step.kernel == nullptr) step.body_op = step.op->bodies();
    if (step.body_op != nullptr) PF_RETURN_IF_ERROR(PlanBodies(step));
    plan_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  KernelQuery QueryOf(const PlannedStep& step) const {
    return {.node = step.node, .opset = step.opset, .force_kernel = &options_.force_kernel};
  }

  std::string_view ForcedKernel(const KernelQuery& query) const {
    const auto force = options_.force_kernel.find(query.node->op_type());
    return force == options_.force_kernel.end() ? std::string_view() : force->second;
  }

  // The best kernel of the device, or else of the CPU.
  absl::Status Choose(KernelQuery& query, PlannedStep& step) const {
    if (plan_.device == nullptr) return ChooseOnHost(query, step);
    query.device = Device::kCuda;
    auto choice = ChooseKernel(query, ForcedKernel(query));
    if (choice.ok() && choice->kernel != nullptr) return Take(*std::move(choice), step);
    if (choice.ok()) step.device_refusals = std::move(choice->refusals);
    query.device = Device::kCpu;
    return ChooseOnHost(query, step);
  }

  absl::Status ChooseOnHost(const KernelQuery& query, PlannedStep& step) const {
    PF_ASSIGN_OR_RETURN(KernelChoice choice, ChooseKernel(query, ForcedKernel(query)));
    return Take(std::move(choice), step);
  }

  static absl::Status Take(KernelChoice choice, PlannedStep& step) {
    step.op = choice.op;
    step.kernel = choice.kernel;
    step.refusals = std::move(choice.refusals);
    return absl::OkStatus();
  }

  absl::Status PlanBodies(PlannedStep& step) {
    std::vector<Value*> captures;
    for (Value* value : ValuesRead(*step.node)) {
      // A constant is in the body's plan by itself.
      if (!value->IsConstant()) captures.push_back(value);
    }
    for (const Value* value : captures) step.captures.push_back(Index(value));
    for (const Graph* graph : step.node->Subgraphs()) {
      PF_ASSIGN_OR_RETURN(ExecutionPlan plan,
                          Planner(model_, options_, /*is_body=*/true).Run(*graph, captures));
      step.bodies.push_back({graph, std::make_unique<ExecutionPlan>(std::move(plan))});
    }
    return absl::OkStatus();
  }

  absl::Status Prepare(const KernelQuery& query, PlannedStep& step) {
    if (!step.kernel || !options_.runs) return absl::OkStatus();
    const bool on_device = step.kernel->device != Device::kCpu;
    PF_ASSIGN_OR_RETURN(
        step.state,
        PrepareState(query, *step.kernel, on_device ? &plan_.device->memory() : options_.allocator,
                     on_device ? plan_.device.get() : nullptr));
    step.placing = dynamic_cast<PlacingKernel*>(step.state.get());
    return absl::OkStatus();
  }

  void FindLastReads() {
    last_read_.assign(plan_.values.size(), -1);
    for (int step = 0; step < static_cast<int>(plan_.steps.size()); ++step) {
      for (int input : plan_.steps[step].inputs) {
        if (input >= 0) last_read_[input] = step;
      }
      for (int input : plan_.steps[step].host_inputs) {
        if (input >= 0) last_read_[input] = step;
      }
      for (int capture : plan_.steps[step].captures) last_read_[capture] = step;
    }
    const int end = static_cast<int>(plan_.steps.size());
    for (int output : plan_.outputs) last_read_[output] = end;
    memory_of_.resize(plan_.values.size());
    std::iota(memory_of_.begin(), memory_of_.end(), 0);
    last_memory_read_ = last_read_;
  }

  void PlaceOutputs(int step_index) {
    PlannedStep& step = plan_.steps[step_index];
    for (int out = 0; out < static_cast<int>(step.outputs.size()); ++out) {
      if (step.outputs[out] < 0) continue;
      if (step.op != nullptr &&
          (TryAlias(step_index, out) || TryView(step_index, out) || TryInPlace(step_index, out))) {
        continue;
      }
      PlannedValue& value = plan_.values[step.outputs[out]];
      if (step.body_op != nullptr) {
        value.placement = Placement::kProduced;
        continue;
      }
      if (value.value->is_output() && step.op != nullptr) {
        value.placement = Placement::kOutput;
        continue;
      }
      value.placement = Placement::kArena;
      value.storage = static_cast<int>(plan_.storages.size());
      plan_.storages.push_back(
          {.first_step = step_index, .last_step = step_index, .on_device = value.on_device});
    }
    step.only_views = OnlyViews(step);
  }

  static bool OnlyViews(const PlannedStep& step) {
    if (step.op == nullptr) return false;
    for (size_t out = 0; out < step.outputs.size(); ++out) {
      if (step.outputs[out] < 0) continue;
      if (step.op->views().empty() || step.shares_input[out] < 0) return false;
    }
    return !step.outputs.empty();
  }

  // The last step that reads any value that shares memory with `value`.
  int LastReadOfMemory(int value) const { return last_memory_read_[memory_of_[value]]; }

  void Share(PlannedStep& step, int out, int in) {
    const int input = step.inputs[in];
    const int output = step.outputs[out];
    step.shares_input[out] = in;
    plan_.values[output].placement = plan_.values[input].placement;
    plan_.values[output].storage = plan_.values[input].storage;
    const int memory = memory_of_[output] = memory_of_[input];
    last_memory_read_[memory] = std::max(last_memory_read_[memory], last_read_[output]);
  }

  static int PairedInput(const std::vector<std::pair<int, int>>& pairs, const PlannedStep& step,
                         int out) {
    for (const auto& [output, input] : pairs) {
      if (output == out && input < static_cast<int>(step.inputs.size()) &&
          step.inputs[input] >= 0) {
        return input;
      }
    }
    return -1;
  }

  // An updated cache is the caller's memory, unless something reads the old contents later or the
  // input is a constant.
  bool TryAlias(int step_index, int out) {
    PlannedStep& step = plan_.steps[step_index];
    const int in = PairedInput(step.op->aliases(), step, out);
    if (in < 0) return false;
    step.must_alias[out] = true;
    const PlannedValue& input = plan_.values[step.inputs[in]];
    // An output of the graph may be kept by the caller, which the arena is not.
    const bool leaves_arena =
        input.placement == Placement::kArena && plan_.values[step.outputs[out]].value->is_output();
    const bool read_later = LastReadOfMemory(step.inputs[in]) > step_index;
    const bool feed = !is_body_ && (input.value->is_input() || IsUpdatedFeed(step.inputs[in]));
    const bool writable = input.placement == Placement::kArena || feed;
    if (read_later || !writable || leaves_arena) {
      step.shares_input[out] = -1;
      return false;
    }
    Share(step, out, in);
    return true;
  }

  bool IsUpdatedFeed(int value) const {
    return plan_.values[value].placement == Placement::kExternal &&
           plan_.values[memory_of_[value]].value->is_input();
  }

  bool TryView(int step_index, int out) {
    PlannedStep& step = plan_.steps[step_index];
    const int in = PairedInput(step.op->views(), step, out);
    if (in < 0 || plan_.values[step.outputs[out]].value->is_output()) return false;
    Share(step, out, in);
    return true;
  }

  bool TryInPlace(int step_index, int out) {
    PlannedStep& step = plan_.steps[step_index];
    const Value* output = plan_.values[step.outputs[out]].value;
    if (output->is_output()) return false;
    // What is declared holds for kernels that go through their elements in order.
    if (step.on_device && !step.op->is_elementwise()) return false;
    for (const auto& [pair_out, in] : step.op->in_place()) {
      if (pair_out != out || in >= static_cast<int>(step.inputs.size())) continue;
      const int input = step.inputs[in];
      if (input < 0 || plan_.values[input].placement != Placement::kArena) continue;
      if (std::ranges::count(step.inputs, input) != 1) continue;
      if (LastReadOfMemory(input) != step_index || TakenByOtherOutput(step, in)) continue;
      const Value* value = plan_.values[input].value;
      if (value->dtype() != output->dtype() || !value->shape() || !output->shape()) continue;
      if (!ProvablyEqual(*value->shape(), *output->shape())) continue;
      Share(step, out, in);
      return true;
    }
    return false;
  }

  static bool TakenByOtherOutput(const PlannedStep& step, int in) {
    return std::ranges::find(step.shares_input, in) != step.shares_input.end();
  }

  void ExtendLifetimes() {
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const PlannedValue& value = plan_.values[i];
      if (value.storage < 0) continue;
      Storage& storage = plan_.storages[value.storage];
      storage.last_step = std::max(storage.last_step, last_read_[i]);
    }
  }

  const Model& model_;
  const PlanOptions& options_;
  bool is_body_;
  ExecutionPlan plan_;
  absl::flat_hash_map<const Value*, int> index_;
  std::vector<int> last_read_;  // by value: last step that reads it; past the end for graph outputs
  std::vector<int> memory_of_;  // by value: the first value in the same memory
  std::vector<int> last_memory_read_;  // by first value: last step that reads one of the sharers
};

}  // namespace

namespace {

// Whether the step has a kernel that takes each of these inputs in blocks, and updates them where they
// are.
bool TakesBlocks(const PlannedStep& step, const std::vector<bool>& in_blocks) {
  const auto holds = [&](int value) { return value >= 0 && in_blocks[value]; };
  if (step.op == nullptr) return true;
  if (std::ranges::any_of(step.captures, holds)) return false;
  for (size_t in = 0; in < step.inputs.size(); ++in) {
    if (!holds(step.inputs[in])) continue;
    const std::vector<Port>& ports = step.op->inputs();
    if (step.kernel == nullptr || in >= ports.size() || !ports[in].in_blocks) return false;
  }
  return std::ranges::none_of(step.op->aliases(), [&](const std::pair<int, int>& alias) {
    const auto [out, in] = alias;
    const bool updates = out < static_cast<int>(step.outputs.size()) && step.outputs[out] >= 0 &&
                         in < static_cast<int>(step.inputs.size()) && holds(step.inputs[in]);
    return updates && step.shares_input[out] != in;
  });
}

}  // namespace

const PlannedStep* DenseReader(const ExecutionPlan& plan, int input) {
  std::vector<bool> in_blocks(plan.values.size());
  in_blocks[plan.inputs[input]] = true;
  for (const PlannedStep& step : plan.steps) {
    if (!TakesBlocks(step, in_blocks)) return &step;
    for (size_t out = 0; out < step.outputs.size(); ++out) {
      const int in = step.shares_input[out];
      if (step.outputs[out] >= 0 && in >= 0 && in_blocks[step.inputs[in]]) {
        in_blocks[step.outputs[out]] = true;
      }
    }
  }
  return nullptr;
}

absl::StatusOr<ExecutionPlan> MakePlan(Model& model, const PlanOptions& options) {
  PF_ASSIGN_OR_RETURN(ExecutionPlan plan, Planner(model, options).Run(*model.graph, {}));
  if (!options.runs) return plan;
  PF_RETURN_IF_ERROR(PackConstants(plan));
  if (plan.device != nullptr) PF_RETURN_IF_ERROR(UploadConstants(plan));
  return plan;
}

bool LooksAt(const PlannedStep& step, size_t input) {
  return std::ranges::count(step.kernel->host_inputs, static_cast<int>(input)) > 0;
}

std::string NameOfKernel(const PlannedStep& step) {
  if (step.copy == StepCopy::kToDevice) return "copy to the device";
  if (step.copy == StepCopy::kToHost) return "copy to the host";
  if (step.on_device && !step.op->views().empty()) return "view on the device";
  if (step.kernel != nullptr) return step.kernel->Description();
  return step.body_op != nullptr ? "graphs" : "decomposition";
}

}  // namespace pagefuse
