#include "pagefuse/runtime/paged_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

int64_t BlocksFor(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The first position that a token at `position` or later can still see.
int64_t FirstVisible(const CacheGroup& group, int64_t position) {
  if (group.sliding_window == 0) return 0;
  return std::max<int64_t>(0, position - group.sliding_window + 1);
}

}  // namespace

PagedCache::PagedCache(std::vector<CacheGroup> groups) : groups_(std::move(groups)) {
  for (const CacheGroup& group : groups_) {
    pools_.emplace_back(BlockPool::Options{.num_blocks = group.num_blocks});
  }
}

SequenceId PagedCache::AddSequence() {
  Sequence& sequence = sequences_[next_id_];
  sequence.blocks.resize(groups_.size());
  sequence.freed.assign(groups_.size(), 0);
  return next_id_++;
}

absl::StatusOr<SequenceId> PagedCache::Fork(SequenceId parent) {
  auto it = sequences_.find(parent);
  if (it == sequences_.end()) return absl::NotFoundError(absl::StrCat("no sequence ", parent));
  const Sequence copy = it->second;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t block : copy.blocks[g]) {
      if (block >= 0) pools_[g].AddReference(block);
    }
  }
  sequences_[next_id_] = copy;
  return next_id_++;
}

void PagedCache::Remove(SequenceId sequence) {
  auto it = sequences_.find(sequence);
  if (it == sequences_.end()) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t block : it->second.blocks[g]) {
      if (block >= 0) pools_[g].Release(block);
    }
  }
  sequences_.erase(it);
}

int64_t PagedCache::Length(SequenceId sequence) const {
  auto it = sequences_.find(sequence);
  return it == sequences_.end() ? 0 : it->second.length;
}

// Blocks behind the last one that the sequence has.
int64_t PagedCache::NewBlocks(int group, const Sequence& sequence, int64_t num_tokens) const {
  const int64_t block_size = groups_[group].block_size;
  // More tokens than the pool has room for need more blocks than it has, however many they are.
  num_tokens = std::min(num_tokens, (pools_[group].num_blocks() + 1) * block_size);
  const auto have = static_cast<int64_t>(sequence.blocks[group].size());
  return std::max<int64_t>(0, BlocksFor(sequence.length + num_tokens, block_size) - have);
}

// The block that gets the first new token, if the sequence shares it with others; else -1.
int32_t PagedCache::SharedTail(int group, const Sequence& sequence, int64_t num_tokens) const {
  const std::vector<int32_t>& blocks = sequence.blocks[group];
  const int64_t first = sequence.length / groups_[group].block_size;
  if (num_tokens == 0 || first >= static_cast<int64_t>(blocks.size()) || blocks[first] < 0) {
    return -1;
  }
  return pools_[group].references(blocks[first]) > 1 ? blocks[first] : -1;
}

bool PagedCache::CanAppend(const std::vector<StepEntry>& entries) const {
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    int64_t needed = 0;
    std::map<int32_t, int> writers;  // of shared blocks
    for (const StepEntry& entry : entries) {
      auto it = sequences_.find(entry.sequence);
      if (it == sequences_.end()) return false;
      needed += NewBlocks(g, it->second, entry.num_tokens);
      const int32_t shared = SharedTail(g, it->second, entry.num_tokens);
      if (shared >= 0) ++writers[shared];
    }
    // Each writer gets a copy of its own, but for one that nobody shares the block with any more.
    for (const auto& [block, count] : writers) {
      needed += std::min(count, pools_[g].references(block) - 1);
    }
    if (needed > pools_[g].num_free()) return false;
  }
  return true;
}

absl::Status PagedCache::CheckEntries(const std::vector<StepEntry>& entries) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    const StepEntry& entry = entries[i];
    if (!sequences_.contains(entry.sequence)) {
      return absl::NotFoundError(absl::StrCat("no sequence ", entry.sequence));
    }
    if (entry.num_tokens < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", entry.sequence, ": ", entry.num_tokens, " tokens to append"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (entries[j].sequence == entry.sequence) {
        return absl::InvalidArgumentError(
            absl::StrCat("sequence ", entry.sequence, " occurs twice in one step"));
      }
    }
  }
  if (!CanAppend(entries)) {
    return absl::ResourceExhaustedError("not enough free cache blocks for the step");
  }
  return absl::OkStatus();
}

absl::StatusOr<StepMetadata> PagedCache::Append(const std::vector<StepEntry>& entries) {
  PF_RETURN_IF_ERROR(CheckEntries(entries));
  StepMetadata step;
  step.query_start_loc.push_back(0);
  step.groups.resize(groups_.size());
  for (const StepEntry& entry : entries) {
    Sequence& sequence = sequences_[entry.sequence];
    for (size_t g = 0; g < groups_.size(); ++g) {
      TakeBlocks(static_cast<int>(g), sequence, entry.num_tokens);
      MapSlots(static_cast<int>(g), sequence, entry.num_tokens, step.groups[g].slot_mapping);
    }
    for (int64_t i = 0; i < entry.num_tokens; ++i) step.positions.push_back(sequence.length + i);
    sequence.length += entry.num_tokens;
    step.query_start_loc.push_back(
        static_cast<int32_t>(step.query_start_loc.back() + entry.num_tokens));
    step.seq_lens.push_back(static_cast<int32_t>(sequence.length));
  }
  for (size_t g = 0; g < groups_.size(); ++g)
    WriteTable(static_cast<int>(g), entries, step.groups[g]);
  // Only now: the step itself still reads what its first token can see.
  for (const StepEntry& entry : entries) FreeBehindWindow(sequences_[entry.sequence]);
  return step;
}

void PagedCache::TakeBlocks(int group, Sequence& sequence, int64_t num_tokens) {
  if (num_tokens == 0) return;
  const int64_t block_size = groups_[group].block_size;
  std::vector<int32_t>& blocks = sequence.blocks[group];
  BlockPool& pool = pools_[group];
  if (const int32_t shared = SharedTail(group, sequence, num_tokens); shared >= 0) {
    const int32_t copy = *pool.Allocate();
    copies_.push_back({group, shared, copy});
    pool.Release(shared);
    blocks[sequence.length / block_size] = copy;
  }
  const int64_t end = BlocksFor(sequence.length + num_tokens, block_size);
  while (static_cast<int64_t>(blocks.size()) < end) blocks.push_back(*pool.Allocate());
}

void PagedCache::MapSlots(int group, const Sequence& sequence, int64_t num_tokens,
                          std::vector<int64_t>& slots) const {
  const int64_t block_size = groups_[group].block_size;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t position = sequence.length + i;
    slots.push_back(sequence.blocks[group][position / block_size] * block_size +
                    position % block_size);
  }
}

void PagedCache::WriteTable(int group, const std::vector<StepEntry>& entries,
                            StepMetadata::Group& out) const {
  for (const StepEntry& entry : entries) {
    const auto blocks = static_cast<int64_t>(sequences_.at(entry.sequence).blocks[group].size());
    out.max_blocks = std::max(out.max_blocks, blocks);
  }
  for (const StepEntry& entry : entries) {
    const std::vector<int32_t>& blocks = sequences_.at(entry.sequence).blocks[group];
    // A freed block is behind every token's window and never read, but kernels check ids: any valid
    // one will do.
    for (int32_t block : blocks) out.block_table.push_back(std::max(block, 0));
    out.block_table.resize(out.block_table.size() + out.max_blocks - blocks.size(), -1);
  }
}

void PagedCache::FreeBehindWindow(Sequence& sequence) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    // The next token is at position `length`.
    const int64_t keep = FirstVisible(groups_[g], sequence.length) / groups_[g].block_size;
    std::vector<int32_t>& blocks = sequence.blocks[g];
    const int64_t end = std::min<int64_t>(keep, static_cast<int64_t>(blocks.size()));
    for (int64_t i = sequence.freed[g]; i < end; ++i) {
      pools_[g].Release(blocks[i]);
      blocks[i] = -1;
    }
    sequence.freed[g] = std::max(sequence.freed[g], end);
  }
}

std::vector<PagedCache::Copy> PagedCache::TakeCopies() { return std::exchange(copies_, {}); }

int64_t PagedCache::blocks_in_use() const {
  int64_t used = 0;
  for (const BlockPool& pool : pools_) used += pool.num_used();
  return used;
}

}  // namespace pagefuse
