// SPDX-License-Identifier: Apache-2.0
#include "device_op.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "must.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/runtime/execution_plan.h"

namespace pagefuse {
namespace {

// Of "cuda on cuda: queries are no codes" what is behind the kernel's name, of all kernels of the device.
std::string WhyNotThere(const PlannedStep& step) {
  const auto choice =
      ChooseKernel({.node = step.node, .opset = step.opset, .device = Device::kCuda});
  if (choice.ok() && choice->kernel != nullptr) return "planned for the host";
  const std::string text =
      choice.ok() ? absl::StrJoin(choice->refusals, "; ") : std::string(choice.status().message());
  const std::string mark = StrCat(" on ", DeviceName(Device::kCuda), ": ");
  std::set<std::string> reasons;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    at += mark.size();
    reasons.insert(text.substr(at, text.find("; ", at) - at));
  }
  return reasons.empty() ? "no kernel" : absl::StrJoin(reasons, "; ");
}

}  // namespace

absl::StatusOr<std::vector<NodePlace>> PlacesOf(Model model,
                                                std::shared_ptr<DeviceContext> device) {
  PF_RETURN_IF_ERROR(InlineAllFunctions(model));
  PF_RETURN_IF_ERROR(VerifyOps(model));
  PF_RETURN_IF_ERROR(InferShapes(model));
  PF_ASSIGN_OR_RETURN(const ExecutionPlan plan,
                      MakePlan(model, {.device = std::move(device), .runs = false}));
  std::vector<NodePlace> places;
  for (const PlannedStep& step : plan.steps) {
    if (step.copy != StepCopy::kNone) continue;
    places.push_back({.on_device = step.on_device,
                      .kernel = NameOfKernel(step),
                      .reason = step.on_device ? "" : WhyNotThere(step)});
  }
  return places;
}

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Make(
    Model model, std::shared_ptr<DeviceContext> device) {
  auto made = std::make_unique<DeviceModel>();
  PF_ASSIGN_OR_RETURN(made->places_, PlacesOf(model.Clone(), device));
  PF_ASSIGN_OR_RETURN(
      made->session_,
      Session::Create(std::move(model),
                      {.optimise = false, .load_passes = false, .device = std::move(device)}));
  return made;
}

const NodePlace& OnlyPlace(const DeviceModel& model) {
  PF_CHECK(model.places().size() == 1);
  return model.places().front();
}

Model ModelOf(const CaseNode& call) {
  Model model;
  model.graph = call.node().graph()->Clone();
  for (const Value* output : call.node().outputs()) {
    if (output != nullptr) model.graph->AddOutput(model.graph->FindValue(output->name()));
  }
  model.opset_imports[""] = kNewestOpset;
  model.opset_imports[call.node().domain()] = call.opset();
  return model;
}

std::map<std::string, Tensor> FeedsOf(const CaseNode& call) {
  std::map<std::string, Tensor> feeds;
  for (size_t i = 0; i < call.inputs().size(); ++i) {
    const Value* value = call.node().input(static_cast<int>(i));
    if (value == nullptr || value->IsConstant()) continue;
    const Tensor& input = call.inputs()[i];
    const bool copied = input.dtype() != DataType::kString;
    feeds[value->name()] = copied ? Must(input.Clone()) : input;
  }
  return feeds;
}

bool HasDeviceKernel(const OpDef& op) {
  return std::ranges::any_of(op.kernels(),
                             [](const Kernel& kernel) { return kernel.device == Device::kCuda; });
}

}  // namespace pagefuse
