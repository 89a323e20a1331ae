// SPDX-License-Identifier: Apache-2.0
// The paged KV cache of a session: cache groups, the blocks of each sequence, and the step's
// metadata.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/runtime/page_pool.h"
#include "pagefuse/runtime/prefix_tree.h"

namespace pagefuse {

using SequenceId = int64_t;

// One sequence's share of a step: `num_tokens` new tokens at positions [length, length +
// num_tokens).
struct StepEntry {
  SequenceId sequence = 0;
  int64_t num_tokens = 0;
  // Whether the logits behind its last token are wanted; those of no token are not.
  bool wants_logits = true;
  // Of all its tokens, of which each is a row of its own (by_token).
  bool wants_all_logits = false;
  // Each token is a sequence of one new token in the step's metadata, all with the same blocks: it is
  // computed as one that is decoded.
  bool by_token = false;

  // Sequences of the step's metadata.
  int64_t num_rows() const { return by_token ? num_tokens : 1; }
};

// Metadata of a packed step, as the paged graph's inputs take it. B counts an entry once, or once for
// each of its tokens (by_token).
struct StepMetadata {
  std::vector<int64_t> positions;        // [T]
  std::vector<int32_t> query_start_loc;  // [B + 1]
  std::vector<int32_t> seq_lens;         // [B], this step's tokens included
  std::vector<int64_t> logit_rows;       // [R], which tokens of the step have logits, ascending
  struct Group {
    std::vector<int32_t> block_table;   // [B, max_blocks], -1 where unused or freed
    int64_t max_blocks = 0;             // a power of two: it changes seldom as sequences grow
    std::vector<int64_t> slot_mapping;  // [T]
  };
  std::vector<Group> groups;  // in the order of the cache's groups

  // Makes it one of no tokens, in the memory that it has; tables stay.
  void Clear();
};

// Owns the bookkeeping, not the tensors. Blocks of a group that keeps last rows, of a window or of a
// compressor's state, are freed as soon as no later token can see them. A compressed group has a
// row for each window of `ratio` tokens: the token that closes one has its slot, others have -1.
// A step is reserved, run, and then either committed or rolled back; meanwhile the one behind it may be
// reserved. Not thread-safe.
class PagedCache {
 public:
  struct Options {
    // Tokens that groups which keep last rows keep besides, so that a sequence can return to a
    // length that is shorter by as many.
    int64_t keep = 0;
    // Blocks of texts are kept in a prefix tree while there is room, and found again there.
    bool keeps_texts = false;
    PrefixTree::Options tree = {};
  };
  // `num_pages` for the blocks of all groups, whichever need them.
  PagedCache(std::vector<CacheGroup> groups, int64_t num_pages);
  PagedCache(std::vector<CacheGroup> groups, int64_t num_pages, const Options& options);

  SequenceId AddSequence();
  // A sequence that begins with what was found in tree().
  SequenceId AddSequence(const PrefixTree::Hit& hit);
  // A sequence that shares all blocks of `parent`; the first write to a shared block copies it (see
  // TakeCopies).
  absl::StatusOr<SequenceId> Fork(SequenceId parent);

  // Takes tokens back, down to the first `length`. FailedPrecondition if the sequence does not hold all
  // that tokens from there on read of those before: the last window - 1 rows of a window; of a
  // compressor's state the rows of the window that is open there, and where windows overlap those of
  // the one before it. It holds them for every length that it never exceeded by more than `keep`.
  // Where that is a multiple of all ratios and of the tokens of blocks, no block is copied;
  // compressed rows behind it are written again.
  absl::Status Return(SequenceId sequence, int64_t length);
  // Frees everything that only this sequence holds.
  void Remove(SequenceId sequence);
  int64_t Length(SequenceId sequence) const;

  // Blocks of a step, or of more, that are promised one entry after another. What is only kept counts
  // as free: it goes when the step is reserved.
  class Room {
   public:
    explicit Room(const PagedCache& cache) : cache_(cache) {}
    // Whether the entry's new tokens can be given slots beside those before it, which are then taken.
    bool Take(const StepEntry& entry);
    int64_t num_entries() const { return num_entries_; }

   private:
    int64_t Copies(int32_t shared, int writers) const;

    const PagedCache& cache_;
    int64_t num_entries_ = 0;
    int64_t taken_ = 0;                          // pages
    absl::flat_hash_map<int32_t, int> writers_;  // of shared pages
  };
  // True if the entries' new tokens can all be given slots now.
  bool CanAppend(const std::vector<StepEntry>& entries) const;
  // Pages that can be given.
  int64_t Available() const { return pool_.num_free() + pool_.num_kept(); }
  // Pages that a sequence needs besides its own to come to `length`, at most, in steps of
  // `step_tokens`.
  int64_t PagesToGrow(SequenceId sequence, int64_t length, int64_t step_tokens) const;

  // Gives slots to the new tokens and advances lengths; rows behind windows stay. ResourceExhausted,
  // nothing changed, if blocks run out; NotFound for an unknown sequence.
  absl::StatusOr<StepMetadata> Reserve(const std::vector<StepEntry>& entries);
  // Of entries for which `room` was taken, in any order, with nothing changed since. What is told holds
  // until the step has ended and another one is reserved.
  const StepMetadata& Reserve(const std::vector<StepEntry>& entries, const Room& room);
  // The oldest reserved step was run: what no later token sees is freed.
  void Commit();
  // The newest was not: sequences are as long as before, and have given back what they took.
  void RollBack();
  // Reserve and Commit.
  absl::StatusOr<StepMetadata> Append(const std::vector<StepEntry>& entries);

  // Copies of pages (from, to), each with a block of the group, that the caller must make before the
  // step runs.
  struct Copy {
    int group;
    int32_t from, to;
  };
  std::vector<Copy> TakeCopies();

  // Null where texts are not kept.
  PrefixTree* tree() { return tree_.get(); }
  const PrefixTree* tree() const { return tree_.get(); }
  // The sequence has computed the text's first `length` tokens, or more of it: as many as are whole
  // nodes can be found from now on.
  void Publish(SequenceId sequence, const PrefixText& text, int64_t length);
  // At `length`, a multiple of the tree's unit that was published, texts can go on. Nothing where the
  // sequence has given back what they need.
  void MakeCheckpoint(SequenceId sequence, int64_t length);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  // Its num_held is zero when no sequence is left.
  const PagePool& pool() const { return pool_; }
  // Internal unless every page is free, held or kept as sequences and tree say, and tables of the last
  // step have no row that is out of date. O(pages).
  absl::Status CheckAccounts() const;

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<std::vector<int32_t>> blocks;  // by group; -1 where freed behind the window
    std::vector<int64_t> freed;                // by group: how many leading blocks are freed
    std::vector<int64_t> version;           // by group: of its blocks, no others have this number
    PrefixTree::Node* published = nullptr;  // the last node of its text in the tree
  };
  struct Step {
    StepMetadata metadata;
    std::vector<std::vector<int64_t>> table_versions;  // by group: of the rows of its table
  };
  struct Reserved {
    struct Change {
      SequenceId sequence;
      int64_t before, after;  // its lengths
    };
    size_t step;  // its place in steps_
    std::vector<Change> changes;
  };
  struct Share {
    const StepEntry* entry;
    Sequence* sequence;
  };
  bool HoldsRows(int group, const Sequence& sequence, int64_t length) const;
  absl::Status CheckHeld(SequenceId sequence, int64_t length) const;
  void ReturnRows(int group, Sequence& sequence, int64_t length);
  void ReturnTo(Sequence& sequence, int64_t length);
  int64_t BlocksToGrow(int group, const Sequence& sequence, int64_t length,
                       int64_t step_tokens) const;
  static int64_t BlockOf(const CacheGroup& layers, int64_t row, int64_t blocks);
  int64_t NewBlocks(int group, const Sequence& sequence, int64_t num_tokens) const;
  int32_t SharedTail(int group, const Sequence& sequence, int64_t num_tokens) const;
  absl::Status CheckEntries(const std::vector<StepEntry>& entries) const;
  int32_t TakePage();
  static void AddRows(const StepEntry& entry, Sequence& sequence, StepMetadata& step);
  void TakeBlocks(int group, Sequence& sequence, int64_t num_tokens);
  void MapSlots(int group, const Sequence& sequence, int64_t num_tokens,
                std::vector<int64_t>& slots) const;
  void WriteTable(int group, const std::vector<Share>& shares, Step& step) const;
  absl::Status CheckTables(const Step& step) const;
  void Changed(int group, Sequence& sequence) { sequence.version[group] = ++last_version_; }
  void FreeBehindWindow(Sequence& sequence, int64_t length);

  std::vector<CacheGroup> groups_;
  Options options_;
  PagePool pool_;
  std::unique_ptr<PrefixTree> tree_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  std::vector<Copy> copies_;
  std::array<Step, 2> steps_;      // the last ones, whose memory the next ones take
  std::deque<Reserved> reserved_;  // oldest first; two at most
  int64_t last_version_ = 0;
  SequenceId next_id_ = 0;
};

}  // namespace pagefuse
