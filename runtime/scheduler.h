// The scheduler: which requests get how many tokens in the next packed step.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {

// Continuous batching over a paged cache: decode first, then prefill chunks, within a token budget.
// When blocks run out the youngest request gives its blocks back and is computed again later. Knows
// token counts, not tokens. Not thread-safe.
class Scheduler {
 public:
  struct Options {
    int64_t max_tokens_per_step = 512;
    int64_t max_sequences = 64;
  };
  // One request's share of a step.
  struct Work {
    size_t request = 0;
    int64_t first_token = 0;  // index into the request's tokens
    int64_t num_tokens = 0;
    bool last = false;  // ends with the newest token: the logits after it are wanted
  };
  struct Step {
    std::vector<Work> work;  // in the order of the metadata's sequences
    StepMetadata metadata;
  };

  // `cache` must outlive the scheduler.
  Scheduler(PagedCache* cache, const Options& options);
  ~Scheduler();

  // A request with `num_tokens` known tokens; returns its index, 0, 1, ...
  size_t Add(int64_t num_tokens);
  // One more token is known of a request whose last one was computed.
  void AddToken(size_t request);
  // A request that goes on from where `request` is, sharing its blocks; returns its index. One that
  // may not run at once waits, and is computed from the beginning.
  absl::StatusOr<size_t> Fork(size_t request);
  // The request is done: its blocks are freed.
  void Finish(size_t request);
  bool done() const { return running_.empty() && waiting_.empty(); }
  int64_t preemptions() const { return preemptions_; }

  // Takes cache slots for the next step. ResourceExhausted naming the request if it alone does not
  // fit. Empty if nothing is left to do.
  absl::StatusOr<Step> Next();

 private:
  struct Request {
    int64_t num_tokens = 0;    // known
    SequenceId sequence = -1;  // -1 while waiting
  };
  int64_t Computed(size_t request) const;
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
};

}  // namespace pagefuse
