// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/paged_cache.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

// A freed block is behind every token's window and never read, but kernels check ids: any valid one will
// do.
int32_t TableEntry(int32_t block) { return std::max(block, 0); }

// The length after so many tokens more, or the largest there is.
int64_t LengthAfter(int64_t length, int64_t num_tokens) {
  return length + std::min(num_tokens, std::numeric_limits<int64_t>::max() - length);
}

}  // namespace

void StepMetadata::Clear() {
  positions.clear();
  query_start_loc.assign(1, 0);
  seq_lens.clear();
  logit_rows.clear();
  for (Group& group : groups) group.slot_mapping.clear();
}

PagedCache::PagedCache(std::vector<CacheGroup> groups, int64_t num_pages)
    : PagedCache(std::move(groups), num_pages, Options()) {}

PagedCache::PagedCache(std::vector<CacheGroup> groups, int64_t num_pages, const Options& options)
    : groups_(std::move(groups)), options_(options), pool_({.num_pages = num_pages}) {
  for (Step& step : steps_) {
    step.metadata.groups.resize(groups_.size());
    step.table_versions.resize(groups_.size());
  }
  if (options_.keeps_texts) tree_ = std::make_unique<PrefixTree>(groups_, &pool_, options_.tree);
}

SequenceId PagedCache::AddSequence() {
  Sequence& sequence = sequences_[next_id_];
  sequence.blocks.resize(groups_.size());
  sequence.freed.assign(groups_.size(), 0);
  sequence.version.assign(groups_.size(), 0);
  return next_id_++;
}

SequenceId PagedCache::AddSequence(const PrefixTree::Hit& hit) {
  const SequenceId id = AddSequence();
  if (hit.node == nullptr) return id;
  Sequence& sequence = sequences_[id];
  sequence.length = hit.length;
  sequence.published = hit.node;
  tree_->Hold(hit.node);
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t>& blocks = sequence.blocks[g];
    blocks = tree_->Blocks(static_cast<int>(g), hit.node);
    for (const int32_t block : blocks) {
      if (block >= 0) pool_.AddReference(block);
    }
    const auto first = std::ranges::find_if(blocks, [](int32_t block) { return block >= 0; });
    sequence.freed[g] = first - blocks.begin();
    Changed(static_cast<int>(g), sequence);
  }
  return id;
}

absl::StatusOr<SequenceId> PagedCache::Fork(SequenceId parent) {
  auto it = sequences_.find(parent);
  if (it == sequences_.end()) return absl::NotFoundError(absl::StrCat("no sequence ", parent));
  const Sequence copy = it->second;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t block : copy.blocks[g]) {
      if (block >= 0) pool_.AddReference(block);
    }
  }
  if (tree_) tree_->Hold(copy.published);
  sequences_[next_id_] = copy;
  return next_id_++;
}

// A row is held if its block is; rows of no block are none.
bool PagedCache::HoldsRows(int group, const Sequence& sequence, int64_t length) const {
  const int64_t first = groups_[group].FirstNeeded(length);
  if (first >= groups_[group].RowsOf(length)) return true;
  return first / groups_[group].block_size >= sequence.freed[group];
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
        ": expected row ", groups_[g].FirstNeeded(length), " of cache group \"", groups_[g].name,
        "\", got rows from ", it->second.freed[g] * groups_[g].block_size, " on"));
  }
  return absl::OkStatus();
}

absl::Status PagedCache::Return(SequenceId sequence, int64_t length) {
  PF_RETURN_IF_ERROR(CheckHeld(sequence, length));
  ReturnTo(sequences_[sequence], length);
  return absl::OkStatus();
}

void PagedCache::ReturnTo(Sequence& sequence, int64_t length) {
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) ReturnRows(g, sequence, length);
  sequence.length = length;
  if (tree_ == nullptr) return;
  PrefixTree::Node* published = tree_->Up(sequence.published, length);
  tree_->Hold(published);
  tree_->Release(sequence.published);
  sequence.published = published;
}

void PagedCache::ReturnRows(int group, Sequence& sequence, int64_t length) {
  std::vector<int32_t>& blocks = sequence.blocks[group];
  const int64_t block_size = groups_[group].block_size;
  const int64_t rows = groups_[group].RowsOf(length);
  int64_t count = std::min(BlocksOfRows(rows, block_size), static_cast<int64_t>(blocks.size()));
  // Where the block of the next row is freed, it takes a new one.
  if (rows % block_size != 0 && count > 0 && blocks[count - 1] < 0) --count;
  for (auto i = static_cast<size_t>(count); i < blocks.size(); ++i) {
    if (blocks[i] >= 0) pool_.Release(blocks[i]);
  }
  blocks.resize(static_cast<size_t>(count));
  sequence.freed[group] = std::min(sequence.freed[group], count);
  Changed(group, sequence);
}

void PagedCache::Remove(SequenceId sequence) {
  auto it = sequences_.find(sequence);
  if (it == sequences_.end()) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t block : it->second.blocks[g]) {
      if (block >= 0) pool_.Release(block);
    }
  }
  if (tree_) tree_->Release(it->second.published);
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
  const auto have = static_cast<int64_t>(sequence.blocks[group].size());
  if (rows <= have * layers.block_size || rows == layers.RowsOf(sequence.length)) return 0;
  return std::clamp<int64_t>(BlocksOfRows(rows, layers.block_size) - have, 0,
                             pool_.num_pages() + 1);
}

// The block that gets the first new row, if the sequence shares it with others; else -1.
int32_t PagedCache::SharedTail(int group, const Sequence& sequence, int64_t num_tokens) const {
  const CacheGroup& layers = groups_[group];
  const std::vector<int32_t>& blocks = sequence.blocks[group];
  const int64_t row = layers.RowsOf(sequence.length);
  const int64_t first = BlockOf(layers, row, static_cast<int64_t>(blocks.size()));
  if (layers.RowsOf(LengthAfter(sequence.length, num_tokens)) == row ||
      first >= static_cast<int64_t>(blocks.size()) || blocks[first] < 0) {
    return -1;
  }
  const bool shared = pool_.references(blocks[first]) > 1 || pool_.kept(blocks[first]);
  return shared ? blocks[first] : -1;
}

// Of a shared page, for so many sequences that write to it: each gets one of its own, but for one
// that nobody shares it with any more.
int64_t PagedCache::Room::Copies(int32_t shared, int writers) const {
  const PagePool& pool = cache_.pool_;
  if (shared < 0 || writers == 0) return 0;
  return pool.kept(shared) ? writers : std::min(writers, pool.references(shared) - 1);
}

bool PagedCache::Room::Take(const StepEntry& entry) {
  const auto it = cache_.sequences_.find(entry.sequence);
  if (it == cache_.sequences_.end()) return false;
  absl::InlinedVector<int32_t, 16> shared;
  int64_t taken = taken_;
  for (int g = 0; g < static_cast<int>(cache_.groups_.size()); ++g) {
    taken += cache_.NewBlocks(g, it->second, entry.num_tokens);
    const int32_t tail = cache_.SharedTail(g, it->second, entry.num_tokens);
    if (tail < 0) continue;
    const auto writer = writers_.find(tail);
    const int writers = writer == writers_.end() ? 0 : writer->second;
    taken += Copies(tail, writers + 1) - Copies(tail, writers);
    shared.push_back(tail);
  }
  if (taken > cache_.Available()) return false;
  taken_ = taken;
  for (const int32_t page : shared) ++writers_[page];
  ++num_entries_;
  return true;
}

bool PagedCache::CanAppend(const std::vector<StepEntry>& entries) const {
  Room room(*this);
  return std::ranges::all_of(entries, [&](const StepEntry& entry) { return room.Take(entry); });
}

int64_t PagedCache::PagesToGrow(SequenceId sequence, int64_t length, int64_t step_tokens) const {
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end()) return 0;
  int64_t pages = 0;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    pages += BlocksToGrow(g, it->second, length, step_tokens);
  }
  return pages;
}

int64_t PagedCache::BlocksToGrow(int group, const Sequence& sequence, int64_t length,
                                 int64_t step_tokens) const {
  const CacheGroup& layers = groups_[group];
  const auto held = static_cast<int64_t>(sequence.blocks[group].size());
  const int64_t freed = sequence.freed[group];
  const int64_t needed = BlocksOfRows(layers.RowsOf(length), layers.block_size) - held;
  if (layers.sliding_window == 0) return std::max<int64_t>(needed, 0);
  // The window, the step's own tokens, and one block cut at either end.
  const int64_t most =
      BlocksOfRows(LengthAfter(layers.sliding_window, step_tokens), layers.block_size) + 2;
  return std::max<int64_t>(std::min(needed, most - (held - freed)), 0);
}

// In which block a row lies; mostly the last one that there is.
int64_t PagedCache::BlockOf(const CacheGroup& layers, int64_t row, int64_t blocks) {
  const int64_t last = (blocks - 1) * layers.block_size;
  if (row >= last && row < last + layers.block_size) return blocks - 1;
  return row / layers.block_size;
}

absl::Status PagedCache::CheckEntries(const std::vector<StepEntry>& entries) const {
  absl::flat_hash_set<SequenceId> seen;
  for (const StepEntry& entry : entries) {
    if (!sequences_.contains(entry.sequence)) {
      return absl::NotFoundError(absl::StrCat("no sequence ", entry.sequence));
    }
    if (entry.num_tokens < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", entry.sequence, ": ", entry.num_tokens, " tokens to append"));
    }
    if (!seen.insert(entry.sequence).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", entry.sequence, " occurs twice in one step"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepMetadata> PagedCache::Append(const std::vector<StepEntry>& entries) {
  PF_ASSIGN_OR_RETURN(StepMetadata step, Reserve(entries));
  Commit();
  return step;
}

// The step itself reads what its first token can see: that is freed only now.
void PagedCache::Commit() {
  if (reserved_.empty()) return;
  for (const Reserved::Change& change : reserved_.front().changes) {
    const auto it = sequences_.find(change.sequence);
    if (it == sequences_.end()) continue;
    // What the step behind this one sees stays, if it is reserved.
    FreeBehindWindow(it->second, std::min(change.after, it->second.length));
  }
  reserved_.pop_front();
}

void PagedCache::RollBack() {
  if (reserved_.empty()) return;
  for (const Reserved::Change& change : reserved_.back().changes) {
    const auto it = sequences_.find(change.sequence);
    if (it != sequences_.end()) ReturnTo(it->second, change.before);
  }
  reserved_.pop_back();
}

absl::StatusOr<StepMetadata> PagedCache::Reserve(const std::vector<StepEntry>& entries) {
  PF_RETURN_IF_ERROR(CheckEntries(entries));
  Room room(*this);
  for (const StepEntry& entry : entries) {
    if (room.Take(entry)) continue;
    return absl::ResourceExhaustedError("not enough free cache pages for the step");
  }
  return Reserve(entries, room);
}

const StepMetadata& PagedCache::Reserve(const std::vector<StepEntry>& entries, const Room& room) {
  PF_CHECK(reserved_.size() < steps_.size() &&
           room.num_entries() == static_cast<int64_t>(entries.size()));
  const size_t place = reserved_.empty() ? 0 : 1 - reserved_.front().step;
  StepMetadata& step = steps_[place].metadata;
  step.Clear();
  Reserved& reserved = reserved_.emplace_back(Reserved{.step = place, .changes = {}});
  std::vector<Share> shares;
  shares.reserve(entries.size());
  for (const StepEntry& entry : entries) {
    Sequence& sequence = sequences_.find(entry.sequence)->second;
    shares.push_back({&entry, &sequence});
    const int64_t before = sequence.length;
    for (size_t g = 0; g < groups_.size(); ++g) {
      TakeBlocks(static_cast<int>(g), sequence, entry.num_tokens);
      MapSlots(static_cast<int>(g), sequence, entry.num_tokens, step.groups[g].slot_mapping);
    }
    AddRows(entry, sequence, step);
    reserved.changes.push_back({entry.sequence, before, sequence.length});
  }
  for (size_t g = 0; g < groups_.size(); ++g)
    WriteTable(static_cast<int>(g), shares, steps_[place]);
  return step;
}

void PagedCache::AddRows(const StepEntry& entry, Sequence& sequence, StepMetadata& step) {
  for (int64_t i = 0; i < entry.num_tokens; ++i) step.positions.push_back(sequence.length + i);
  const int64_t tokens = entry.by_token ? 1 : entry.num_tokens;  // of a row
  for (int64_t row = 0; row < entry.num_rows(); ++row) {
    sequence.length += tokens;
    step.query_start_loc.push_back(static_cast<int32_t>(step.query_start_loc.back() + tokens));
    step.seq_lens.push_back(static_cast<int32_t>(sequence.length));
    if (entry.wants_all_logits) step.logit_rows.push_back(step.query_start_loc.back() - 1);
  }
  if (entry.wants_logits && !entry.wants_all_logits && entry.num_tokens > 0) {
    step.logit_rows.push_back(step.query_start_loc.back() - 1);
  }
}

// Some there is, or can be: CheckEntries counted them.
int32_t PagedCache::TakePage() {
  if (tree_ && pool_.num_free() == 0) PF_CHECK(tree_->Evict());
  return *pool_.Allocate();
}

void PagedCache::TakeBlocks(int group, Sequence& sequence, int64_t num_tokens) {
  const CacheGroup& layers = groups_[group];
  const int64_t rows = layers.RowsOf(sequence.length + num_tokens);
  if (rows == layers.RowsOf(sequence.length)) return;
  std::vector<int32_t>& blocks = sequence.blocks[group];
  if (const int32_t shared = SharedTail(group, sequence, num_tokens); shared >= 0) {
    const int32_t copy = TakePage();
    copies_.push_back({group, shared, copy});
    pool_.Release(shared);
    blocks[layers.RowsOf(sequence.length) / layers.block_size] = copy;
    Changed(group, sequence);
  }
  if (static_cast<int64_t>(blocks.size()) * layers.block_size >= rows) return;
  while (static_cast<int64_t>(blocks.size()) * layers.block_size < rows) {
    blocks.push_back(TakePage());
  }
  Changed(group, sequence);
}

void PagedCache::MapSlots(int group, const Sequence& sequence, int64_t num_tokens,
                          std::vector<int64_t>& slots) const {
  const CacheGroup& layers = groups_[group];
  const std::vector<int32_t>& blocks = sequence.blocks[group];
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t length = sequence.length + i + 1;
    const int64_t row = layers.RowsOf(length) - 1;
    if ((row + 1) * layers.tokens_per_row() != length) {
      slots.push_back(-1);
      continue;
    }
    const int64_t block = BlockOf(layers, row, static_cast<int64_t>(blocks.size()));
    slots.push_back((blocks[block] - block) * layers.block_size + row);
  }
}

// A row that stood there in the step before stays.
void PagedCache::WriteTable(int group, const std::vector<Share>& shares, Step& step) const {
  StepMetadata::Group& out = step.metadata.groups[group];
  std::vector<int64_t>& versions = step.table_versions[group];
  int64_t rows = 0, most = 0;
  for (const auto& [entry, sequence] : shares) {
    most = std::max(most, static_cast<int64_t>(sequence->blocks[group].size()));
    rows += entry->num_rows();
  }
  // A width that stays as sequences grow: shapes of steps do not change with every block.
  if (most > 0) most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most)));
  if (most != out.max_blocks) versions.clear();
  versions.resize(rows, -1);
  out.max_blocks = most;
  out.block_table.resize(rows * most);
  int64_t row = 0;
  for (const auto& [entry, sequence] : shares) {
    const std::vector<int32_t>& blocks = sequence->blocks[group];
    for (const int64_t end = row + entry->num_rows(); row < end; ++row) {
      if (versions[row] == sequence->version[group]) continue;
      versions[row] = sequence->version[group];
      const auto to = out.block_table.begin() + row * most;
      const auto end_of_blocks = std::transform(blocks.begin(), blocks.end(), to, TableEntry);
      std::fill(end_of_blocks, to + most, -1);
    }
  }
}

void PagedCache::FreeBehindWindow(Sequence& sequence, int64_t length) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    // The next token is at position `length`, or before it after a return, or where another text
    // goes on from the last whole node.
    const int64_t whole = tree_ ? length / tree_->unit() * tree_->unit() : length;
    const int64_t next = std::max<int64_t>(0, whole - options_.keep);
    const int64_t keep = groups_[g].FirstVisible(next) / groups_[g].block_size;
    std::vector<int32_t>& blocks = sequence.blocks[g];
    const int64_t end = std::min<int64_t>(keep, static_cast<int64_t>(blocks.size()));
    for (int64_t i = sequence.freed[g]; i < end; ++i) {
      pool_.Release(blocks[i]);
      blocks[i] = -1;
    }
    if (end <= sequence.freed[g]) continue;
    sequence.freed[g] = end;
    Changed(static_cast<int>(g), sequence);
  }
}

std::vector<PagedCache::Copy> PagedCache::TakeCopies() { return std::exchange(copies_, {}); }

void PagedCache::Publish(SequenceId sequence, const PrefixText& text, int64_t length) {
  const auto it = sequences_.find(sequence);
  if (tree_ == nullptr || it == sequences_.end()) return;
  Sequence& state = it->second;
  PrefixTree::Node* published =
      tree_->Publish(text, state.published,
                     std::min(length, state.length) / tree_->unit() * tree_->unit(), state.blocks);
  if (published != state.published) {
    for (size_t g = 0; g < groups_.size(); ++g) Changed(static_cast<int>(g), state);
  }
  tree_->Hold(published);
  tree_->Release(state.published);
  state.published = published;
}

void PagedCache::MakeCheckpoint(SequenceId sequence, int64_t length) {
  const auto it = sequences_.find(sequence);
  if (tree_ == nullptr || it == sequences_.end()) return;
  PrefixTree::Node* node = tree_->Up(it->second.published, length);
  if (tree_->LengthOf(node) == length) tree_->MakeCheckpoint(node, it->second.blocks);
}

// Rows that would stay in the next step say what their sequences have.
absl::Status PagedCache::CheckTables(const Step& step) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    absl::flat_hash_map<int64_t, const std::vector<int32_t>*> by_version;
    for (const auto& [id, sequence] : sequences_)
      by_version[sequence.version[g]] = &sequence.blocks[g];
    const StepMetadata::Group& table = step.metadata.groups[g];
    for (size_t row = 0; row < step.table_versions[g].size(); ++row) {
      const auto found = by_version.find(step.table_versions[g][row]);
      if (found == by_version.end()) continue;
      const auto first = table.block_table.begin() + static_cast<int64_t>(row) * table.max_blocks;
      const auto same = [](int32_t block, int32_t entry) { return TableEntry(block) == entry; };
      if (std::equal(found->second->begin(), found->second->end(), first, same)) continue;
      return absl::InternalError(absl::StrCat("group ", g, ", row ", row,
                                              " of the block table is not what its sequence has"));
    }
  }
  return absl::OkStatus();
}

absl::Status PagedCache::CheckAccounts() const {
  if (tree_) PF_RETURN_IF_ERROR(tree_->CheckAccounts());
  PF_RETURN_IF_ERROR(pool_.CheckAccounts());
  for (const Step& step : steps_) PF_RETURN_IF_ERROR(CheckTables(step));
  absl::flat_hash_map<int32_t, int32_t> holders;
  for (const auto& [id, sequence] : sequences_) {
    for (const std::vector<int32_t>& blocks : sequence.blocks) {
      for (const int32_t page : blocks) holders[page] += page >= 0 ? 1 : 0;
    }
  }
  holders.erase(-1);
  for (const auto& [page, count] : holders) {
    if (count == pool_.references(page)) continue;
    return absl::InternalError(absl::StrCat("page ", page, " has ", count,
                                            " holders, the pool counts ", pool_.references(page)));
  }
  if (static_cast<int64_t>(holders.size()) == pool_.num_held()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("sequences hold ", holders.size(),
                                          " pages, the pool counts ", pool_.num_held()));
}

}  // namespace pagefuse
