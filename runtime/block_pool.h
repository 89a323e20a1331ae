// SPDX-License-Identifier: Apache-2.0
// The pool of cache blocks: which blocks are free, and how many hold each used one.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse {

// Blocks 0 .. num_blocks-1 of one cache group. Block ids index the first dim of every cache tensor
// of the group. Freed blocks are reused last in, first out. Not thread-safe.
class BlockPool {
 public:
  struct Options {
    int64_t num_blocks = 0;
  };
  explicit BlockPool(const Options& options);

  // A block with reference count one. ResourceExhausted if none is free: a normal answer, the
  // caller waits.
  absl::StatusOr<int32_t> Allocate();
  // One more holder (forked sequences).
  void AddReference(int32_t block);
  // One holder less; the last one frees the block.
  void Release(int32_t block);

  // Block ids are int32 in block tables.
  static constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();

  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_free() const { return num_blocks() - num_used(); }
  int64_t num_used() const { return static_cast<int64_t>(references_.size() - free_.size()); }
  // 0 for a block that is free.
  int32_t references(int32_t block) const {
    return block >= 0 && block < static_cast<int64_t>(references_.size()) ? references_[block] : 0;
  }

 private:
  int64_t num_blocks_;
  std::vector<int32_t> references_;  // of the blocks that were ever used: 0, 1, ...
  std::vector<int32_t> free_;        // those of them that are free
};

}  // namespace pagefuse
