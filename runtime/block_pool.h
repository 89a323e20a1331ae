// SPDX-License-Identifier: Apache-2.0
// The pool of cache blocks: which blocks are free, and who has each of the others.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagefuse {

// Blocks 0 .. num_blocks-1 of one cache group. Block ids index the first dim of every cache tensor
// of the group. A block is free, or held by sequences, or kept for later ones, or both; of those that
// are only kept the owner of the pool can make free ones. Freed blocks are reused last in, first out.
// Not thread-safe.
class BlockPool {
 public:
  struct Options {
    int64_t num_blocks = 0;
  };
  explicit BlockPool(const Options& options);

  // A block with one holder. ResourceExhausted if none is free: a normal answer, the caller waits.
  absl::StatusOr<int32_t> Allocate();
  // One more holder, of a block that is held or kept.
  void AddReference(int32_t block);
  // One holder less; the last one frees the block if it is not kept.
  void Release(int32_t block);
  // Keeps a block that is held or kept once more, and once less.
  void Keep(int32_t block);
  void Drop(int32_t block);

  // Block ids are int32 in block tables.
  static constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();

  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_free() const { return num_blocks() - num_used(); }
  // Held, or kept.
  int64_t num_used() const { return static_cast<int64_t>(blocks_.size() - free_.size()); }
  int64_t num_held() const { return num_used() - num_kept_; }
  // Kept, and held by nobody.
  int64_t num_kept() const { return num_kept_; }
  // 0 for a block that nobody holds.
  int32_t references(int32_t block) const { return Find(block).references; }
  bool kept(int32_t block) const { return Find(block).kept > 0; }

  // Internal naming the first block whose state is not what the counts say; O(blocks).
  absl::Status CheckAccounts() const;

 private:
  struct Block {
    int32_t references = 0;
    int32_t kept = 0;
  };
  Block Find(int32_t block) const {
    return block >= 0 && block < static_cast<int64_t>(blocks_.size()) ? blocks_[block] : Block{};
  }

  int64_t num_blocks_;
  int64_t num_kept_ = 0;
  std::vector<Block> blocks_;  // those that were ever used: 0, 1, ...
  std::vector<int32_t> free_;  // those of them that are free
};

}  // namespace pagefuse
