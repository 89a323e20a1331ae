#include "pagefuse/runtime/block_pool.h"

#include "pagefuse/ir/status_macros.h"

namespace pagefuse {

BlockPool::BlockPool(const Options& options) : references_(options.num_blocks, 0) {
  free_.reserve(options.num_blocks);
  for (int64_t block = options.num_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<int32_t>(block));
  }
}

absl::StatusOr<int32_t> BlockPool::Allocate() {
  if (free_.empty()) return absl::ResourceExhaustedError("no cache block is free");
  int32_t block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  PF_CHECK(references_[block] > 0);
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  PF_CHECK(references_[block] > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

}  // namespace pagefuse
