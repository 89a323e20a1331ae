// SPDX-License-Identifier: Apache-2.0
// The scheduler decides which requests get how many tokens in the next packed step.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {

// A beginning that a request has in common with another one.
struct SharedPrefix {
  size_t request = 0;
  int64_t length = 0;
};

// How many of the `left` tokens of a prompt a step with room for `most` computes: 2 or more, and it
// leaves none or 2 or more for later, since the sums of a token that is computed alone have another
// order than those of one among others. 0 where the room is too small for that.
int64_t PromptPiece(int64_t left, int64_t most);

// Continuous batching over a paged cache: decode first, then pieces of prompts, within a token
// budget. When blocks run out the youngest request gives its blocks back and is computed again later:
// its prompt in pieces, the tokens that it had written one by one, as they were the first time, so
// that each has the same logits. Knows token counts, not tokens. Not thread-safe.
class Scheduler {
 public:
  // max_tokens_per_step is 4 or more, and max_sequences at most half of it: so prompts always have
  // room for a piece beside the sequences that decode.
  struct Options {
    int64_t max_tokens_per_step = 512;
    int64_t max_sequences = 64;
  };
  // One request's share of a step.
  struct Work {
    size_t request = 0;
    int64_t first_token = 0;  // index into the request's tokens
    int64_t num_tokens = 0;
    bool by_token = false;  // each token as a sequence of its own (StepEntry)
    bool last = false;  // ends with the newest token: the logits after it are wanted, and no others
  };
  struct Step {
    std::vector<Work> work;  // in the order of the metadata's sequences
    StepMetadata metadata;
  };

  // `cache` must outlive the scheduler.
  Scheduler(PagedCache* cache, const Options& options);
  ~Scheduler();

  // A request whose prompt has `num_tokens` tokens; returns its index, 0, 1, ... One that begins like an
  // earlier one, by fewer tokens than it has, waits while that one is on its way there, and goes on
  // from its blocks, if these leave it a piece of its prompt. If they are gone, or never were, it is
  // computed from the beginning.
  size_t Add(int64_t num_tokens, std::optional<SharedPrefix> prefix = std::nullopt);
  // One more token is known of a request whose last one was computed.
  void AddToken(size_t request);
  // A request that goes on from where `request` is, sharing its blocks; returns its index. One that
  // may not run at once waits, and is computed from the beginning.
  absl::StatusOr<size_t> Fork(size_t request);
  // The request is done: its blocks are freed.
  void Finish(size_t request);
  bool done() const { return running_.empty() && waiting_.empty(); }
  int64_t preemptions() const { return preemptions_; }
  // Tokens of prompts that were not computed since another request had them.
  int64_t shared_tokens() const { return shared_tokens_; }

  // Takes cache slots for the next step. ResourceExhausted naming the request if it alone does not
  // fit. Empty if nothing is left to do.
  absl::StatusOr<Step> Next();

 private:
  struct Request {
    int64_t num_tokens = 0;                             // known
    int64_t num_read = 0;                               // of these, the prompt's
    SequenceId sequence = -1;                           // -1 while waiting
    std::optional<SharedPrefix> prefix = std::nullopt;  // until the request runs
  };
  int64_t Computed(size_t request) const;
  // Whether what the request begins with is still to be computed by the one that has it too.
  bool Awaits(size_t request) const;
  void ForkShared();
  int64_t Piece(size_t request, int64_t budget) const;
  int64_t Share(size_t request, int64_t budget) const;
  bool Admit(size_t request, int64_t num_tokens, std::vector<Work>& work);
  void PlanDecodes(int64_t& budget, std::vector<Work>& work);
  void PlanPrefills(int64_t& budget, std::vector<Work>& work);
  void PreemptYoungest();
  std::vector<StepEntry> Entries(const std::vector<Work>& work) const;

  PagedCache* cache_;
  Options options_;
  std::vector<Request> requests_;
  std::vector<size_t> running_;  // oldest first
  std::deque<size_t> waiting_;
  int64_t preemptions_ = 0;
  int64_t shared_tokens_ = 0;
};

}  // namespace pagefuse
