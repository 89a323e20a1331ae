// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/paged_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

int64_t BlocksFor(int64_t rows, int64_t block_size) {
  return rows / block_size + (rows % block_size != 0 ? 1 : 0);
}

// The first row that a token at `position` or later can still see.
int64_t FirstVisible(const CacheGroup& group, int64_t position) {
  if (group.sliding_window == 0) return 0;
  return std::max<int64_t>(0, position - group.sliding_window + 1);
}

// The same in a sequence of that length: a state is read by the tokens that close windows only.
int64_t FirstNeeded(const CacheGroup& group, int64_t length) {
  if (group.kind != CacheKind::kState) return FirstVisible(group, length);
  const int64_t last = length / group.ratio * group.ratio + group.ratio - 1;
  return FirstVisible(group, last);
}

// The length after so many tokens more, or the largest there is.
int64_t LengthAfter(int64_t length, int64_t num_tokens) {
  return length + std::min(num_tokens, std::numeric_limits<int64_t>::max() - length);
}

}  // namespace

PagedCache::PagedCache(std::vector<CacheGroup> groups) : PagedCache(std::move(groups), Options()) {}

PagedCache::PagedCache(std::vector<CacheGroup> groups, const Options& options)
    : groups_(std::move(groups)), options_(options) {
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

// A row is held if its block is; rows of no block are none.
bool PagedCache::HoldsRows(int group, const Sequence& sequence, int64_t length) const {
  const int64_t first = FirstNeeded(groups_[group], length);
  if (first >= groups_[group].RowsOf(length)) return true;
  return first / groups_[group].block_size >= sequence.freed[group];
}

bool PagedCache::Holds(SequenceId sequence, int64_t length) const {
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end() || length < 0 || length > it->second.length) return false;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (!HoldsRows(g, it->second, length)) return false;
  }
  return true;
}

absl::Status PagedCache::CheckHeld(SequenceId sequence, int64_t length) const {
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end()) return absl::NotFoundError(absl::StrCat("no sequence ", sequence));
  if (length < 0 || length > it->second.length) {
    return absl::FailedPreconditionError(absl::StrCat("sequence ", sequence,
                                                      ": expected a length of 0 to ",
                                                      it->second.length, ", got ", length));
  }
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (HoldsRows(g, it->second, length)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "sequence ", sequence, " of ", it->second.length, " tokens, back to ", length,
        ": expected row ", FirstNeeded(groups_[g], length), " of cache group \"", groups_[g].name,
        "\", got rows from ", it->second.freed[g] * groups_[g].block_size, " on"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceId> PagedCache::ForkAt(SequenceId parent, int64_t length) {
  PF_RETURN_IF_ERROR(CheckHeld(parent, length));
  PF_ASSIGN_OR_RETURN(const SequenceId fork, Fork(parent));
  PF_RETURN_IF_ERROR(Return(fork, length));
  return fork;
}

absl::Status PagedCache::Return(SequenceId sequence, int64_t length) {
  PF_RETURN_IF_ERROR(CheckHeld(sequence, length));
  Sequence& state = sequences_[sequence];
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) ReturnRows(g, state, length);
  state.length = length;
  return absl::OkStatus();
}

void PagedCache::ReturnRows(int group, Sequence& sequence, int64_t length) {
  std::vector<int32_t>& blocks = sequence.blocks[group];
  const int64_t block_size = groups_[group].block_size;
  const int64_t rows = groups_[group].RowsOf(length);
  int64_t count = std::min(BlocksFor(rows, block_size), static_cast<int64_t>(blocks.size()));
  // Where the block of the next row is freed, it takes a new one.
  if (rows % block_size != 0 && count > 0 && blocks[count - 1] < 0) --count;
  for (auto i = static_cast<size_t>(count); i < blocks.size(); ++i) {
    if (blocks[i] >= 0) pools_[group].Release(blocks[i]);
  }
  blocks.resize(static_cast<size_t>(count));
  sequence.freed[group] = std::min(sequence.freed[group], count);
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

// Blocks behind the last one that the sequence has, for new rows; one more than there are stands
// for many.
int64_t PagedCache::NewBlocks(int group, const Sequence& sequence, int64_t num_tokens) const {
  const CacheGroup& layers = groups_[group];
  const int64_t rows = layers.RowsOf(LengthAfter(sequence.length, num_tokens));
  if (rows == layers.RowsOf(sequence.length)) return 0;
  const auto have = static_cast<int64_t>(sequence.blocks[group].size());
  return std::clamp<int64_t>(BlocksFor(rows, layers.block_size) - have, 0,
                             pools_[group].num_blocks() + 1);
}

// The block that gets the first new row, if the sequence shares it with others; else -1.
int32_t PagedCache::SharedTail(int group, const Sequence& sequence, int64_t num_tokens) const {
  const CacheGroup& layers = groups_[group];
  const std::vector<int32_t>& blocks = sequence.blocks[group];
  const int64_t row = layers.RowsOf(sequence.length);
  const int64_t first = row / layers.block_size;
  if (layers.RowsOf(LengthAfter(sequence.length, num_tokens)) == row ||
      first >= static_cast<int64_t>(blocks.size()) || blocks[first] < 0) {
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
    const int64_t tokens = entry.by_token ? 1 : entry.num_tokens;  // of a row
    for (int64_t row = 0; row < entry.num_rows(); ++row) {
      sequence.length += tokens;
      step.query_start_loc.push_back(static_cast<int32_t>(step.query_start_loc.back() + tokens));
      step.seq_lens.push_back(static_cast<int32_t>(sequence.length));
    }
    if (entry.wants_logits && entry.num_tokens > 0) {
      step.logit_rows.push_back(step.query_start_loc.back() - 1);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g)
    WriteTable(static_cast<int>(g), entries, step.groups[g]);
  // Only now: the step itself still reads what its first token can see.
  for (const StepEntry& entry : entries) FreeBehindWindow(sequences_[entry.sequence]);
  return step;
}

void PagedCache::TakeBlocks(int group, Sequence& sequence, int64_t num_tokens) {
  const CacheGroup& layers = groups_[group];
  const int64_t rows = layers.RowsOf(sequence.length + num_tokens);
  if (rows == layers.RowsOf(sequence.length)) return;
  std::vector<int32_t>& blocks = sequence.blocks[group];
  BlockPool& pool = pools_[group];
  if (const int32_t shared = SharedTail(group, sequence, num_tokens); shared >= 0) {
    const int32_t copy = *pool.Allocate();
    copies_.push_back({group, shared, copy});
    pool.Release(shared);
    blocks[layers.RowsOf(sequence.length) / layers.block_size] = copy;
  }
  const int64_t end = BlocksFor(rows, layers.block_size);
  while (static_cast<int64_t>(blocks.size()) < end) blocks.push_back(*pool.Allocate());
}

void PagedCache::MapSlots(int group, const Sequence& sequence, int64_t num_tokens,
                          std::vector<int64_t>& slots) const {
  const CacheGroup& layers = groups_[group];
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t length = sequence.length + i + 1;
    if (length % layers.tokens_per_row() != 0) {
      slots.push_back(-1);
      continue;
    }
    const int64_t row = layers.RowsOf(length) - 1;
    slots.push_back(sequence.blocks[group][row / layers.block_size] * layers.block_size +
                    row % layers.block_size);
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
    for (int64_t row = 0; row < entry.num_rows(); ++row) {
      for (int32_t block : blocks) out.block_table.push_back(std::max(block, 0));
      out.block_table.resize(out.block_table.size() + out.max_blocks - blocks.size(), -1);
    }
  }
}

void PagedCache::FreeBehindWindow(Sequence& sequence) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    // The next token is at position `length`, or before it after a return.
    const int64_t next = std::max<int64_t>(0, sequence.length - options_.keep);
    const int64_t keep = FirstVisible(groups_[g], next) / groups_[g].block_size;
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
