// The paged KV cache of a session: cache groups, the blocks of each sequence, and the step's
// metadata.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor.h"
#include "pagefuse/runtime/block_pool.h"

namespace pagefuse {

// Layers that keep the same tokens: full attention keeps all, a sliding window of W the last W. A
// group has one block table and one pool; its layers' cache tensors are indexed by the same block
// ids.
struct CacheGroup {
  std::string name;  // "full", "window_512": suffix of block_table.<name> and slot_mapping.<name>
  int64_t sliding_window = 0;  // 0: keeps everything
  int64_t block_size = 16;     // tokens a block
  int64_t num_blocks = 0;
  std::vector<std::string>
      caches;  // graph inputs: kv_cache.N.key, .value (, .key_scale, .value_scale)
};

using SequenceId = int64_t;

// One sequence's share of a step: `num_tokens` new tokens at positions [length, length +
// num_tokens).
struct StepEntry {
  SequenceId sequence;
  int64_t num_tokens;
};

// Metadata of a packed step, as the paged graph's inputs take it.
struct StepMetadata {
  std::vector<int64_t> positions;        // [T]
  std::vector<int32_t> query_start_loc;  // [B + 1]
  std::vector<int32_t> seq_lens;         // [B], this step's tokens included
  struct Group {
    std::vector<int32_t> block_table;  // [B, max_blocks], -1 where unused or freed
    int64_t max_blocks = 0;
    std::vector<int64_t> slot_mapping;  // [T]
  };
  std::vector<Group> groups;  // in the order of the cache's groups
};

// Owns the bookkeeping, not the tensors. Blocks of a sliding-window group are freed as soon as no
// later token can see them. Not thread-safe.
class PagedCache {
 public:
  explicit PagedCache(std::vector<CacheGroup> groups);

  SequenceId AddSequence();
  // A sequence that shares all blocks of `parent`; the first write to a shared block copies it (see
  // TakeCopies).
  absl::StatusOr<SequenceId> Fork(SequenceId parent);
  // Frees everything that only this sequence holds.
  void Remove(SequenceId sequence);
  int64_t Length(SequenceId sequence) const;

  // True if the entries' new tokens can all be given slots now.
  bool CanAppend(const std::vector<StepEntry>& entries) const;
  // Gives slots to the new tokens and advances lengths. ResourceExhausted, nothing changed, if
  // blocks run out; NotFound for an unknown sequence.
  absl::StatusOr<StepMetadata> Append(const std::vector<StepEntry>& entries);

  // Block copies (group, from, to) that the caller must make in every cache tensor of the group
  // before the step runs.
  struct Copy {
    int group;
    int32_t from, to;
  };
  std::vector<Copy> TakeCopies();

  const std::vector<CacheGroup>& groups() const { return groups_; }
  const BlockPool& pool(int group) const { return pools_[group]; }
  // Blocks in use over all groups: zero when no sequence is left.
  int64_t blocks_in_use() const;

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<std::vector<int32_t>> blocks;  // by group; -1 where freed behind the window
    std::vector<int64_t> freed;                // by group: how many leading blocks are freed
  };
  int64_t NewBlocks(int group, const Sequence& sequence, int64_t num_tokens) const;
  int32_t SharedTail(int group, const Sequence& sequence, int64_t num_tokens) const;
  absl::Status CheckEntries(const std::vector<StepEntry>& entries) const;
  void TakeBlocks(int group, Sequence& sequence, int64_t num_tokens);
  void MapSlots(int group, const Sequence& sequence, int64_t num_tokens,
                std::vector<int64_t>& slots) const;
  void WriteTable(int group, const std::vector<StepEntry>& entries, StepMetadata::Group& out) const;
  void FreeBehindWindow(Sequence& sequence);

  std::vector<CacheGroup> groups_;
  std::vector<BlockPool> pools_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Copy> copies_;
  SequenceId next_id_ = 0;
};

}  // namespace pagefuse
