// SPDX-License-Identifier: Apache-2.0
// Tokens chosen on a session's device, so that of a step's logits these alone come to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/runtime/executor.h"
#include "pagefuse/runtime/sampler.h"

namespace pagefuse {

// Runs the op SampleTokens by itself. Not thread-safe.
class DeviceSampler {
 public:
  // Null where the device has no kernel for it.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(
      std::shared_ptr<DeviceContext> device);

  // Asks for a token of each of logits [R, V], which lie on the device and may be computed there still.
  absl::Status Draw(const Tensor& logits, std::span<const DrawPlan> plans);
  // Waits for those that were asked for last; -1 where the row has none, or Sampler::Next would have an error.
  absl::StatusOr<std::vector<int64_t>> Take();
  // That the device took for all that were waited for.
  double device_seconds() const { return executor_.device_seconds(); }

 private:
  DeviceSampler(std::unique_ptr<Model> model, ExecutionPlan plan)
      : model_(std::move(model)), executor_(std::move(plan)) {}

  std::unique_ptr<Model> model_;
  Executor executor_;
  Tensor tokens_;  // on the device
};

}  // namespace pagefuse
