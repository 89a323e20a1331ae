// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/block_pool.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

BlockPool::BlockPool(const Options& options) : num_blocks_(options.num_blocks) {
  PF_CHECK(num_blocks_ >= 0 && num_blocks_ <= kMaxBlocks);
}

absl::StatusOr<int32_t> BlockPool::Allocate() {
  if (num_free() == 0) return absl::ResourceExhaustedError("no cache block is free");
  if (free_.empty()) {
    references_.push_back(1);
    return static_cast<int32_t>(references_.size() - 1);
  }
  const int32_t block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  PF_CHECK(references(block) > 0);
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  PF_CHECK(references(block) > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

}  // namespace pagefuse
