// SPDX-License-Identifier: Apache-2.0
// Where the steps of a paged graph run: it has the cache pages, and the logits until somebody asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/runtime/cache_layout.h"
#include "pagefuse/runtime/paged_cache.h"
#include "pagefuse/runtime/session.h"
#include "pagefuse/runtime/step_logits.h"
#include "pagefuse/runtime/step_record.h"

namespace pagefuse {

// The engine reaches caches through this alone, and tells it of a step what the record says. Calls come
// one at a time, in the order in which their effects are to be seen.
class StepDevice {
 public:
  virtual ~StepDevice() = default;

  // Pages of zeros for all caches (CacheLayout::page_bytes), in place of those that were there.
  // ResourceExhausted if there is no memory for them: then there are none.
  virtual absl::Status MakePages(int64_t num_pages) = 0;
  // Copies of pages, or of what a group has in them, before the next step.
  virtual absl::Status CopyPages(std::span<const PagedCache::Copy> copies) = 0;
  // The dense block of a cache that lies in a page: as many bytes as it has. NotFound for another name,
  // InvalidArgument for another page or number of bytes.
  virtual absl::Status ReadPage(std::string_view cache, int64_t page,
                                std::span<std::byte> block) = 0;
  virtual absl::Status WritePage(std::string_view cache, int64_t page,
                                 std::span<const std::byte> block) = 0;
  // Does what the host does for RunPrepared of this record, while the device may be at the step before. What
  // is wrong is told then.
  virtual void Prepare(const StepRecord&) {}
  // Run of the record that Prepare had last, of which nothing changed since but the values of "input_ids".
  virtual absl::StatusOr<std::unique_ptr<StepLogits>> RunPrepared(const StepRecord& record) {
    return Run(record);
  }
  // Runs a step over the pages. The logits as the graph gives them; they outlive neither the device nor
  // its next step.
  virtual absl::StatusOr<std::unique_ptr<StepLogits>> Run(const StepRecord& record) = 0;
};

// Makes a device for a graph; both outlive it.
using StepDeviceMaker = std::function<absl::StatusOr<std::unique_ptr<StepDevice>>(
    Session& session, const CacheLayout& layout)>;

}  // namespace pagefuse
