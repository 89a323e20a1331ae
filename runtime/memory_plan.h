// SPDX-License-Identifier: Apache-2.0
// Assigns each storage an offset in the arena by its lifetime, so that storages that are alive at
// the same time never overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefuse {

// A piece of memory that one or more values (views, in-place results) share.
struct Storage {
  int first_step = 0;  // the step that writes it first
  int last_step = 0;   // the last step that reads it
  int64_t bytes = 0;   // the largest size seen so far
  bool on_device = false;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // by storage; multiples of 64
  std::vector<int64_t> sizes;    // bytes reserved, at least those asked for
  int64_t arena_bytes = 0;
};

// Of the storages that lie on the device, or of the others, whose sizes are 0 then. Greedy by size: the largest storage first, each at the lowest offset where no storage that is
// alive at the same time lies. Never more than the sum of all sizes, at least the largest sum alive
// at one step.
MemoryPlan PlanMemory(const std::vector<Storage>& storages, bool on_device = false);

}  // namespace pagefuse
