// SPDX-License-Identifier: Apache-2.0
// Memory that the calls of a kernel use again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pagefuse/base/allocator.h"

namespace pagefuse {

// Reusable memory that lives for one kernel call; grows to the largest request and is kept by the
// executor.
class Scratch {
 public:
  explicit Scratch(Allocator& allocator = HostAllocator()) : allocator_(&allocator) {}
  // `bytes` of memory aligned to 64, contents unspecified; valid until the next call of Get with
  // the same `slot`. Throws std::bad_alloc, as `new` does.
  void* Get(size_t bytes, int slot = 0);
  // How often it took memory: addresses that it gave before are good until this changes.
  int64_t growths() const { return growths_; }

 private:
  Allocator* allocator_;
  std::vector<AllocatedMemory> blocks_;
  int64_t growths_ = 0;
};

}  // namespace pagefuse
