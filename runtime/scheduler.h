// SPDX-License-Identifier: Apache-2.0
// The scheduler decides which requests get how many tokens in the next packed step.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/runtime/drafts.h"
#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {

// How many of the `left` tokens of a prompt a step with room for `most` computes: 2 or more, and it
// leaves none or 2 or more for later, since the sums of a token that is computed alone have another
// order than those of one among others. 0 where the room is too small for that.
int64_t PromptPiece(int64_t left, int64_t most);

// Continuous batching over a paged cache.
//
// A step has all sequences that decode, then pieces of prompts in the order of arrival: the oldest
// has half of the tokens that are left, or more, the next ones the rest. A request is admitted, first
// come, first served, when its whole prompt fits beside what those that run may need soon. It goes on
// from what the cache's tree knows of it; one that begins as another one that is being computed waits
// for that. When blocks run out, a request gives its own back: never the oldest, and of those younger
// than the one in need that which loses least. It comes back to its place: its prompt is computed in
// pieces, the tokens that it had written one by one, as they were the first time, so that each has the
// same logits. While anything runs or waits, each step computes a token of the oldest request that
// runs. Planning is linear in the sequences of a step. Not thread-safe.
class Scheduler {
 public:
  // max_tokens_per_step is 4 or more, and max_sequences at most half of it: so prompts always have
  // room for a piece beside the sequences that decode.
  struct Options {
    int64_t max_tokens_per_step = 512;
    int64_t max_sequences = 64;
    int64_t growth_tokens = 64;  // that each running request may need soon
    // Rows of a step up to which drafts are added to sequences that decode; 0: none are.
    int64_t max_draft_rows = 0;
  };
  // One request's tokens, as far as they are known.
  struct Text {
    // The request's own, which grow with AddToken and stay where they are until it is finished.
    const std::vector<int64_t>* tokens = nullptr;
    int64_t num_read = 0;         // of these, the prompt's
    int64_t most_tokens = 0;      // that it may come to
    std::string salt = {};        // texts with another one share nothing
    bool shares = true;           // takes from the tree, and gives to it
    bool shares_written = false;  // gives also tokens that were written, to texts that read them
    Drafts* drafts = nullptr;     // the request's own, or none
  };
  // One request's share of a step.
  struct Work {
    size_t request = 0;
    int64_t first_token = 0;  // index into the request's tokens
    int64_t num_tokens = 0;
    bool by_token = false;  // each token as a sequence of its own (StepEntry)
    bool last = false;  // ends with the newest token: the logits after it are wanted, and no others
    std::vector<int64_t> drafts =
        {};  // behind the newest token: the logits after each are wanted, too
  };
  struct Step {
    std::vector<Work> work;                  // in the order of the metadata's sequences
    const StepMetadata* metadata = nullptr;  // until it has ended and another one is planned
  };

  // `cache` must outlive the scheduler.
  Scheduler(PagedCache* cache, const Options& options);
  ~Scheduler();

  // A request; returns its number, 0, 1, ...
  size_t Add(const Text& text);
  // A request that goes on from where `request` is, sharing its blocks; returns its number. One that
  // may not run at once waits, in the place of the other one.
  absl::StatusOr<size_t> Fork(size_t request, const std::vector<int64_t>* tokens,
                              Drafts* drafts = nullptr);
  // The request is done, or not wanted any more: its blocks are freed.
  void Finish(size_t request);

  bool done() const { return running_.empty() && waiting_.empty(); }
  size_t num_running() const { return running_.size(); }
  size_t num_waiting() const { return waiting_.size(); }
  int64_t preemptions() const { return preemptions_; }
  // Tokens of prompts that were not computed since the tree knew them: of all requests, and of one.
  int64_t shared_tokens() const { return shared_tokens_; }
  int64_t shared_tokens(size_t request) const;
  // Tokens that were computed again since their request gave its blocks back.
  int64_t recomputed_tokens() const { return recomputed_tokens_; }
  // Of beginnings that the tree knew those behind its checkpoints, which were computed again.
  int64_t lost_tokens() const { return lost_tokens_; }

  // Takes cache slots for the next step; empty if nothing is left to do. ResourceExhausted if the
  // oldest request alone does not fit (WhoIsStuck).
  // `most_tokens`: a bound of its own, of those of prompts, while others decode.
  absl::StatusOr<Step> Next(int64_t most_tokens = std::numeric_limits<int64_t>::max());
  size_t WhoIsStuck() const;
  // The step behind `step`, planned while that one is run: what Next would plan if each request gets a
  // token more, but for those that are done then, and nobody comes or goes. nullopt, with nothing taken,
  // if the two are not of decoding alone, somebody waits who may run then, or blocks are short.
  std::optional<Step> Ahead(const Step& step);
  // Whether that has come to be: the step may be run as what Next gave, unless somebody has drafts now.
  // Else it is to be rolled back.
  bool Holds(const Step& ahead) const;
  bool HasDrafts(const Step& ahead) const;
  // The step was run: what it computed can be shared.
  void Commit(const Step& step);
  // Of drafts that were committed so many were right; the others are taken back.
  void Accept(const Work& work, int64_t drafts);
  // The newest was not: its tokens are still to be computed.
  void RollBack() { cache_->RollBack(); }

 private:
  // By arrival; samples of one request arrived together.
  struct Place {
    size_t arrival = 0;
    size_t request = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Request {
    Text text;
    size_t arrival = 0;
    SequenceId sequence = -1;              // -1 while waiting
    std::vector<uint64_t> hashes;          // of its read beginnings, a node longer each; made late
    absl::btree_set<int64_t> checkpoints;  // lengths that others wait for
    std::optional<Place> leader;           // who computes what it begins with
    int64_t leader_length = 0;
    bool was_admitted = false;
    int64_t shared_tokens = 0;
    int64_t computed_before = 0;  // when it gave its blocks back

    int64_t num_tokens() const { return static_cast<int64_t>(text.tokens->size()); }
  };
  // One that runs when a step begins to be planned. It may give its blocks back meanwhile.
  struct Turn {
    Place place;
    Request* request;
    int64_t computed;
    int64_t left;
    bool decodes;  // its newest token alone is to be computed, and it is one that was written
  };
  // A step as it is planned.
  struct Plan {
    explicit Plan(const PagedCache& cache) : room(cache) {}
    PagedCache::Room room;
    std::vector<Turn> turns;  // by place
    std::vector<Work> work;
    std::vector<StepEntry> entries;  // of the work
    int64_t rows = 0;                // tokens of the work
    int64_t budget = 0;
  };

  PrefixText TextOf(const Request& request) const;
  int64_t Computed(const Request& request) const;
  static int64_t Share(const Turn& turn, int64_t most);

  void MakeHashes(Request& request) const;
  void Announce(size_t number, const Request& request);
  void Withdraw(size_t number, const Request& request);
  bool Awaits(Request& request, int64_t found);
  void KeepAll(const Request& request);
  void KeepNodes(Request& request, int64_t from, int64_t to);

  bool Admit(size_t number, const PrefixTree::Hit& hit, int64_t& promised);
  void Promise(const Request& request, int64_t& promised) const;
  void AdmitWaiting();
  static bool Take(const Turn& turn, int64_t num_tokens, Plan& plan,
                   std::vector<int64_t> drafts = {});
  bool MakeRoom(const Place& who);
  void Preempt(size_t number);
  std::vector<Turn> Turns() const;
  static int64_t MostOfFirst(const std::vector<Turn>& turns, int64_t most_tokens);
  static bool TakeDecode(const Turn& turn, int64_t most_drafts, Plan& plan);
  static std::vector<int64_t> Propose(const Request& request, int64_t most);
  static int64_t DraftsOf(int64_t draft_rows, int64_t unplanned, const Plan& plan);
  bool IsFull() const { return running_.size() >= static_cast<size_t>(options_.max_sequences); }
  void PlanOldest(int64_t most, int64_t draft_rows, Plan& plan);
  void PlanDecodes(int64_t draft_rows, Plan& plan);
  static void PlanPrompts(int64_t most_of_first, Plan& plan);
  static void DecodesFirst(Plan& plan);

  PagedCache* cache_;
  Options options_;
  absl::node_hash_map<size_t, Request> requests_;
  absl::btree_map<Place, Request*> running_;
  absl::btree_set<Place> waiting_;
  // Who computes beginnings with these hashes. Two that are alike cost a wait for nothing.
  absl::flat_hash_map<uint64_t, Place> announced_;
  size_t next_ = 0;
  int64_t preemptions_ = 0;
  int64_t shared_tokens_ = 0;
  int64_t recomputed_tokens_ = 0;
  int64_t lost_tokens_ = 0;
};

}  // namespace pagefuse
