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

  // A token for each of logits [R, V], which lie on the device; -1 where the row has none, or Sampler::Next
  // would have an error.
  absl::StatusOr<std::vector<int64_t>> Draw(const Tensor& logits, std::span<const DrawPlan> plans);

 private:
  DeviceSampler(std::unique_ptr<Model> model, ExecutionPlan plan)
      : model_(std::move(model)), executor_(std::move(plan)) {}

  std::unique_ptr<Model> model_;
  Executor executor_;
};

}  // namespace pagefuse
