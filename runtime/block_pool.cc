// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/block_pool.h"

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

BlockPool::BlockPool(const Options& options) : num_blocks_(options.num_blocks) {
  PF_CHECK(num_blocks_ >= 0 && num_blocks_ <= kMaxBlocks);
}

absl::StatusOr<int32_t> BlockPool::Allocate() {
  if (num_free() == 0) return absl::ResourceExhaustedError("no cache block is free");
  if (free_.empty()) {
    blocks_.push_back({.references = 1});
    return static_cast<int32_t>(blocks_.size() - 1);
  }
  const int32_t block = free_.back();
  free_.pop_back();
  blocks_[block].references = 1;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  PF_CHECK(references(block) > 0 || kept(block));
  if (++blocks_[block].references == 1) --num_kept_;
}

void BlockPool::Release(int32_t block) {
  PF_CHECK(references(block) > 0);
  if (--blocks_[block].references > 0) return;
  if (kept(block)) {
    ++num_kept_;
  } else {
    free_.push_back(block);
  }
}

void BlockPool::Keep(int32_t block) {
  PF_CHECK(references(block) > 0 || kept(block));
  ++blocks_[block].kept;
}

void BlockPool::Drop(int32_t block) {
  PF_CHECK(kept(block));
  if (--blocks_[block].kept > 0 || references(block) > 0) return;
  --num_kept_;
  free_.push_back(block);
}

absl::Status BlockPool::CheckAccounts() const {
  std::vector<bool> is_free(blocks_.size());
  for (const int32_t block : free_) {
    if (is_free[block]) return absl::InternalError(absl::StrCat("block ", block, " is free twice"));
    is_free[block] = true;
  }
  int64_t only_kept = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const bool unused = block.references == 0 && block.kept == 0;
    if (block.references < 0 || block.kept < 0 || unused != is_free[i]) {
      return absl::InternalError(absl::StrCat("block ", i, ": ", block.references,
                                              " holders, kept ", block.kept, " times, ",
                                              is_free[i] ? "" : "not ", "among the free ones"));
    }
    only_kept += block.references == 0 && block.kept > 0 ? 1 : 0;
  }
  if (only_kept == num_kept_) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(only_kept, " blocks are only kept, ", num_kept_, " counted"));
}

}  // namespace pagefuse
