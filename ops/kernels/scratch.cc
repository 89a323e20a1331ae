#include "pagefuse/ops/kernels/scratch.h"

#include <algorithm>
#include <cstdint>

namespace pagefuse {

void* Scratch::Get(size_t bytes, int slot) {
  constexpr size_t kAlignment = 64;
  if (static_cast<size_t>(slot) >= blocks_.size()) {
    blocks_.resize(slot + 1);
    sizes_.resize(slot + 1, 0);
  }
  if (bytes > sizes_[slot] || !blocks_[slot]) {
    // Half as much again, so that a context that grows by a token a step does not allocate at every
    // step.
    sizes_[slot] = std::max(bytes, sizes_[slot] + sizes_[slot] / 2);
    blocks_[slot] = std::make_unique_for_overwrite<std::byte[]>(sizes_[slot] + kAlignment);
  }
  auto address = reinterpret_cast<uintptr_t>(blocks_[slot].get());
  return reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace pagefuse
