// The pool of cache blocks: which blocks are free, and how many hold each used one.
#pragma once

#include <cstdint>
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

  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_used() const { return num_blocks() - num_free(); }
  int32_t references(int32_t block) const { return references_[block]; }

 private:
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;
};

}  // namespace pagefuse
