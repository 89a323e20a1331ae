// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/shape_plan.h"

#include <algorithm>

namespace pagefuse {
namespace {

bool HasForm(const Tensor& tensor, const ShapePlan::Form& form) {
  return tensor.dtype() == form.dtype && tensor.dims() == form.dims &&
         tensor.block_stride() == form.block_stride;
}

}  // namespace

ShapePlan::ShapePlan(const ExecutionPlan& plan) : values(plan.values) {
  calls.reserve(plan.steps.size());
  for (const PlannedStep& step : plan.steps) calls.emplace_back(step);
}

ShapePlan& ShapePlans::Find(const ExecutionPlan& plan, const std::vector<Tensor>& inputs) {
  for (auto at = plans_.begin(); at != plans_.end(); ++at) {
    if (!std::ranges::equal(inputs, at->inputs, HasForm)) continue;
    plans_.splice(plans_.begin(), plans_, at);
    return plans_.front();
  }
  if (plans_.size() >= most_) plans_.pop_back();
  ShapePlan& added = plans_.emplace_front(plan);
  for (const Tensor& input : inputs) {
    added.inputs.push_back({input.dtype(), input.dims(), input.block_stride()});
  }
  return added;
}

}  // namespace pagefuse
