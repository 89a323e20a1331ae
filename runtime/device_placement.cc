// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/device_placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/schema/contents_read.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {
namespace {

// Ops whose kernels look at the types and dims of their inputs alone.
bool ReadsNoData(const PlannedStep& step) {
  return step.node->domain().empty() &&
         (step.node->op_type() == "Shape" || step.node->op_type() == "Size");
}

// The inputs whose contents the op's inference asks for.
std::vector<bool> ContentsThatInferenceReads(const PlannedStep& step) {
  std::vector<ShapeContext::Known> known(step.inputs.size());
  for (size_t i = 0; i < known.size(); ++i) {
    const Value* value = step.node->input(static_cast<int>(i));
    if (value == nullptr) continue;
    known[i].dtype = value->dtype();
    if (value->shape()) known[i].shape = *value->shape();
  }
  ShapeContext context(*step.node, step.opset, std::move(known));
  const ContentsRead read(step.inputs.size());
  // What it cannot tell without them is an error here, and no matter.
  (void)step.op->Infer(context);
  std::vector<bool> reads(step.inputs.size());
  for (size_t i = 0; i < reads.size(); ++i) reads[i] = read.contains(i);
  return reads;
}

class DevicePlacer {
 public:
  explicit DevicePlacer(ExecutionPlan& plan) : plan_(plan) {}

  absl::Status Run(const std::function<absl::Status(PlannedStep&)>& use_host_kernel) {
    other_.assign(plan_.values.size(), -1);
    is_early_.assign(plan_.values.size(), false);
    of_shapes_.assign(plan_.values.size(), false);
    FindUpdatedInputs();
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const PlannedValue& value = plan_.values[i];
      is_early_[i] = value.value->is_input() && !value.on_device;
    }
    std::vector<PlannedStep> steps = std::move(plan_.steps);
    plan_.steps.clear();
    for (PlannedStep& step : steps) {
      step.on_device = RunsOnDevice(step);
      if (step.on_device) {
        TakeDeviceInputs(step);
      } else {
        if (HasDeviceKernel(step)) PF_RETURN_IF_ERROR(use_host_kernel(step));
        TakeHostInputs(step);
      }
      const bool is_early = !step.on_device && ReadsOnly(step, is_early_);
      step.follows_from_shapes =
          !step.on_device && (ReadsNoData(step) || ReadsOnly(step, of_shapes_));
      for (const int output : step.outputs) {
        if (output < 0) continue;
        plan_.values[output].on_device = step.on_device;
        is_early_[output] = is_early;
        of_shapes_[output] = step.follows_from_shapes;
        if (IsView(step)) view_of_[output] = {is_early, (is_early ? early_ : plan_.steps).size()};
      }
      (is_early ? early_ : plan_.steps).push_back(std::move(step));
    }
    plan_.device_begin = static_cast<int>(early_.size());
    plan_.steps.insert(plan_.steps.begin(), std::make_move_iterator(early_.begin()),
                       std::make_move_iterator(early_.end()));
    return absl::OkStatus();
  }

 private:
  // Of a step: among those that come first, or the others.
  struct Place {
    bool is_early = false;
    size_t index = 0;
  };

  static bool HasDeviceKernel(const PlannedStep& step) {
    return step.kernel != nullptr && step.kernel->device != Device::kCpu;
  }

  // A chain of updates begins at a graph input.
  void FindUpdatedInputs() {
    for (const PlannedStep& step : plan_.steps) {
      if (!HasDeviceKernel(step)) continue;
      for (const auto& [out, in] : step.op->aliases()) {
        if (in >= static_cast<int>(step.inputs.size()) || step.inputs[in] < 0) continue;
        PlannedValue& value = plan_.values[step.inputs[in]];
        if (value.value->is_input() && value.value->initializer() == nullptr) {
          value.on_device = true;
        }
      }
    }
  }

  // Whether all values that it reads but constants are of these.
  bool ReadsOnly(const PlannedStep& step, const std::vector<bool>& values) const {
    const auto is_one = [&](int value) {
      return value < 0 || plan_.values[value].value->IsConstant() || values[value];
    };
    return std::ranges::all_of(step.inputs, is_one) && std::ranges::all_of(step.captures, is_one);
  }

  // With one output, which is an input's bytes.
  static bool IsView(const PlannedStep& step) {
    return step.op != nullptr && step.op->views().size() == 1 && step.outputs.size() == 1;
  }
  static bool IsViewed(const PlannedStep& step, int input) {
    return std::ranges::any_of(step.op->views(),
                               [&](const auto& view) { return view.second == input; });
  }

  bool IsOnDevice(int value) const { return value >= 0 && plan_.values[value].on_device; }

  bool RunsOnDevice(const PlannedStep& step) const {
    for (const auto& [out, in] : step.op->views()) {
      if (in < static_cast<int>(step.inputs.size()) && IsOnDevice(step.inputs[in])) return true;
    }
    return HasDeviceKernel(step) && !ReadsNoData(step) && !IsHostArithmetic(step);
  }

  // Positions and lengths: a few numbers, which shapes may depend on. Fused ops make lists of them.
  bool IsHostArithmetic(const PlannedStep& step) const {
    if (step.node->domain() == "pagefuse") return false;
    const auto is_index = [&](int value) {
      return value < 0 || IsIndexType(plan_.values[value].value->dtype());
    };
    return std::ranges::none_of(step.inputs, [&](int value) { return IsOnDevice(value); }) &&
           std::ranges::all_of(step.outputs, is_index);
  }

  void TakeDeviceInputs(PlannedStep& step) {
    const std::vector<bool> reads = ContentsThatInferenceReads(step);
    step.host_inputs.assign(step.inputs.size(), -1);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int value = step.inputs[i];
      if (value < 0) continue;
      const bool is_read = IsViewed(step, static_cast<int>(i)) || step.op->views().empty();
      const bool asked_for = HasDeviceKernel(step) &&
                             std::ranges::count(step.kernel->host_inputs, static_cast<int>(i)) > 0;
      if (!plan_.values[value].on_device) {
        step.host_inputs[i] = value;
      } else if (reads[i] || asked_for) {
        step.host_inputs[i] = CopyOf(value, step);
      } else {
        step.host_inputs[i] = KnownCopyOf(value);
      }
      // Of a view nothing but its data is on the device; sizes that the kernel looks at here, it has.
      const bool is_size = reads[i] && asked_for;
      if (is_read && !is_size && !plan_.values[value].on_device) {
        step.inputs[i] = CopyOf(value, step);
      }
    }
  }

  void TakeHostInputs(PlannedStep& step) {
    if (ReadsNoData(step)) return;
    for (std::vector<int>* values : {&step.inputs, &step.captures}) {
      for (int& value : *values) {
        if (IsOnDevice(value)) value = CopyOf(value, step);
      }
    }
  }

  // -1 if there is none by now.
  int KnownCopyOf(int value) const {
    return value < static_cast<int>(other_.size()) ? other_[value] : -1;
  }

  // The value at the other place, for a step that is about to be added.
  int CopyOf(int value, const PlannedStep& reader) {
    if (const int known = KnownCopyOf(value); known >= 0) return known;
    if (const auto view = view_of_.find(value); view != view_of_.end() && !IsOnDevice(value)) {
      return ViewOnDevice(value, view->second, reader);
    }
    const int copy = AddCopy(value);
    const PlannedValue& original = plan_.values[value];
    if (original.value->IsConstant()) return copy;
    if (is_early_[value]) {
      plan_.values[copy].placement = Placement::kUploaded;
      plan_.values[copy].uploaded_from = value;
      return copy;
    }
    PlannedStep step;
    step.node = reader.node;
    step.copy = plan_.values[copy].on_device ? StepCopy::kToDevice : StepCopy::kToHost;
    step.inputs = {value};
    step.outputs = {copy};
    step.shares_input = {-1};
    step.must_alias = {false};
    plan_.steps.push_back(std::move(step));
    return copy;
  }

  int AddCopy(int value) {
    const int copy = static_cast<int>(plan_.values.size());
    PlannedValue other;
    other.value = plan_.values[value].value;
    other.on_device = !plan_.values[value].on_device;
    plan_.values.push_back(std::move(other));
    other_.resize(plan_.values.size(), -1);
    is_early_.resize(plan_.values.size(), false);
    of_shapes_.resize(plan_.values.size(), false);
    other_[value] = copy;
    other_[copy] = value;
    return copy;
  }

  // The host's view of a value, as one of the value on the device: ids under another shape are not copied apart.
  int ViewOnDevice(int value, Place of, const PlannedStep& reader) {
    PlannedStep view;
    const PlannedStep& original = (of.is_early ? early_ : plan_.steps)[of.index];
    view.node = original.node;
    view.op = original.op;
    view.kernel = original.kernel;
    view.opset = original.opset;
    view.on_device = true;
    view.inputs = view.host_inputs = original.inputs;
    view.shares_input = {-1};
    view.must_alias = {false};
    for (size_t i = 0; i < view.inputs.size(); ++i) {
      if (IsViewed(view, static_cast<int>(i))) view.inputs[i] = CopyOf(view.inputs[i], reader);
    }
    view.outputs = {AddCopy(value)};
    plan_.steps.push_back(std::move(view));
    return other_[value];
  }

  ExecutionPlan& plan_;
  std::vector<int> other_;          // by value: the same one at the other place, or -1
  std::map<int, Place> view_of_;    // by value that a view gives: the step
  std::vector<PlannedStep> early_;  // those of the host that read nothing of the device
  // By value: the host has it before the device begins; it follows from the shapes of inputs.
  std::vector<bool> is_early_, of_shapes_;
};

}  // namespace

bool IsIndexType(DataType type) {
  return type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kBool;
}

absl::Status PlaceOnDevice(ExecutionPlan& plan,
                           const std::function<absl::Status(PlannedStep&)>& use_host_kernel) {
  return DevicePlacer(plan).Run(use_host_kernel);
}

absl::Status UploadConstants(ExecutionPlan& plan) {
  std::vector<PlannedValue*> constants;
  for (PlannedValue& value : plan.values) {
    if (value.on_device && value.value->IsConstant()) constants.push_back(&value);
  }
  ProgressStage progress("copying weights to the device", static_cast<int64_t>(constants.size()));
  int64_t copied = 0;
  for (PlannedValue* value : constants) {
    progress.Reach(copied++);
    const Tensor& tensor = *value->value->initializer();
    const absl::Status status = [&]() -> absl::Status {
      PF_ASSIGN_OR_RETURN(value->constant,
                          Tensor::Allocate(tensor.dtype(), tensor.dims(), plan.device->memory()));
      return plan.device->CopyToDevice(value->constant.mutable_data(), tensor.data(),
                                       static_cast<size_t>(tensor.byte_size()));
    }();
    if (!status.ok()) {
      return absl::Status(status.code(), StrCat("weight \"", value->value->name(),
                                                "\": ", StdView(status.message())));
    }
    if (tensor.buffer() != nullptr) {
      ReleasePages(*tensor.buffer(), tensor.data(), static_cast<size_t>(tensor.byte_size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
