// SPDX-License-Identifier: Apache-2.0
// The machine's own memory and cores, as the device of a paged graph.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pagefuse/runtime/step_device.h"

namespace pagefuse {

class HostDevice final : public StepDevice {
 public:
  HostDevice(Session& session, const CacheLayout& layout) : session_(session), layout_(layout) {}

  // Against the session's budget of memory.
  absl::Status MakePages(int64_t num_pages) override;
  absl::Status CopyPages(std::span<const PagedCache::Copy> copies) override;
  absl::Status ReadPage(std::string_view cache, int64_t page, std::span<std::byte> block) override;
  absl::Status WritePage(std::string_view cache, int64_t page,
                         std::span<const std::byte> block) override;
  absl::StatusOr<std::unique_ptr<StepLogits>> Run(const StepRecord& record) override;

  // Caches by the name of their input.
  std::map<std::string, Tensor>& tensors() { return tensors_; }

 private:
  absl::StatusOr<std::byte*> BlockOf(std::string_view cache, int64_t page, size_t bytes);

  Session& session_;
  const CacheLayout& layout_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace pagefuse
