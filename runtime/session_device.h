// SPDX-License-Identifier: Apache-2.0
// Where a session runs, the host or its device, as the device of a paged graph.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pagefuse/runtime/step_device.h"

namespace pagefuse {

class DeviceSampler;

class SessionDevice final : public StepDevice {
 public:
  SessionDevice(Session& session, const CacheLayout& layout);
  ~SessionDevice() override;

  // Caches that the session's device updates lie there, others are the host's and count against the
  // session's budget of memory.
  absl::Status MakePages(int64_t num_pages) override;
  absl::Status CopyPages(std::span<const PagedCache::Copy> copies) override;
  absl::Status ReadPage(std::string_view cache, int64_t page, std::span<std::byte> block) override;
  absl::Status WritePage(std::string_view cache, int64_t page,
                         std::span<const std::byte> block) override;
  void Prepare(const StepRecord& record) override;
  absl::StatusOr<std::unique_ptr<StepLogits>> RunPrepared(const StepRecord& record) override;
  absl::StatusOr<std::unique_ptr<StepLogits>> Run(const StepRecord& record) override;

  double device_seconds() const;
  // Caches by the name of their input.
  std::map<std::string, Tensor>& tensors() { return tensors_; }

 private:
  absl::StatusOr<std::unique_ptr<StepLogits>> LogitsOf(absl::StatusOr<std::vector<Tensor>> ran);
  void LetGo(const StepRecord& record);
  absl::Status CopyBlock(const Tensor& cache, const PagedCache::Copy& copy);
  absl::StatusOr<std::byte*> BlockOf(std::string_view cache, int64_t page, size_t bytes);

  Session& session_;
  const CacheLayout& layout_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Tensor> feeds_;  // these, and places for what a record has
  bool is_prepared_ = false;             // Session::RunPrepared may run the next step
  // Made for the first logits that a device has; null where it draws nothing.
  bool made_sampler_ = false;
  std::unique_ptr<DeviceSampler> sampler_;
};

}  // namespace pagefuse
