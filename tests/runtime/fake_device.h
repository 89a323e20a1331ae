// SPDX-License-Identifier: Apache-2.0
// A device that is none: nobody else has its pages, what it is told of a step is a copy of the record's bytes, and
// logits stay with it until a row is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "pagefuse/runtime/session_device.h"
#include "pagefuse/runtime/step_device.h"

namespace pagefuse {

class FakeDevice final : public StepDevice {
 public:
  // Of all devices that one maker made.
  struct Counts {
    int64_t steps = 0;
    int64_t record_bytes = 0;  // that were copied to the device, one copy a step
    int64_t rows = 0;          // of logits that were copied from it
    int64_t draws = 0;         // that it made itself
  };
  // `draws`: it takes tokens of rows itself, and copies rows only where their numbers are wanted.
  static StepDeviceMaker Maker(std::shared_ptr<Counts> counts = std::make_shared<Counts>(),
                               bool draws = false);

  FakeDevice(Session& session, const CacheLayout& layout, std::shared_ptr<Counts> counts,
             bool draws)
      : session_(session), pages_(session, layout), counts_(std::move(counts)), draws_(draws) {}

  absl::Status MakePages(int64_t num_pages) override { return pages_.MakePages(num_pages); }
  absl::Status CopyPages(std::span<const PagedCache::Copy> copies) override {
    return pages_.CopyPages(copies);
  }
  absl::Status ReadPage(std::string_view cache, int64_t page, std::span<std::byte> block) override {
    return pages_.ReadPage(cache, page, block);
  }
  absl::Status WritePage(std::string_view cache, int64_t page,
                         std::span<const std::byte> block) override {
    return pages_.WritePage(cache, page, block);
  }
  absl::StatusOr<std::unique_ptr<StepLogits>> Run(const StepRecord& record) override;

 private:
  Session& session_;
  SessionDevice pages_;  // of which the engine sees nothing
  std::shared_ptr<Counts> counts_;
  bool draws_;
};

// Where PAGEFUSE_TEST_DEVICE is "fake", a FakeDevice, so that tests of the engine are run over one; else
// null, the host.
StepDeviceMaker TestDevice();

}  // namespace pagefuse
