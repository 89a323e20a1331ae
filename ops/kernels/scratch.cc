// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/scratch.h"

#include <algorithm>
#include <new>

namespace pagefuse {

void* Scratch::Get(size_t bytes, int slot) {
  if (static_cast<size_t>(slot) >= blocks_.size()) blocks_.resize(slot + 1);
  AllocatedMemory& block = blocks_[slot];
  const size_t size = block == nullptr ? 0 : block.get_deleter().bytes;
  if (bytes > size || block == nullptr) {
    // Half as much again, so that a context that grows by a token a step does not allocate at every
    // step.
    block = AllocateFrom(*allocator_, std::max(bytes, size + size / 2));
    if (block == nullptr) throw std::bad_alloc();
    ++growths_;
  }
  return block.get();
}

}  // namespace pagefuse
