// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

int64_t PromptPiece(int64_t left, int64_t most) {
  if (left <= most) return left;
  const int64_t piece = left - most == 1 ? most - 1 : most;
  return piece < 2 ? 0 : piece;
}

Scheduler::Scheduler(PagedCache* cache, const Options& options)
    : cache_(cache), options_(options) {}

Scheduler::~Scheduler() {
  for (size_t request : running_) cache_->Remove(requests_[request].sequence);
}

size_t Scheduler::Add(int64_t num_tokens, std::optional<SharedPrefix> prefix) {
  if (prefix) {
    // Both have a piece of 2 tokens or more behind it, or the other one none.
    prefix->length = std::min(prefix->length, num_tokens - 2);
    if (requests_[prefix->request].num_read - prefix->length == 1) --prefix->length;
    if (prefix->length < 2) prefix.reset();
  }
  requests_.push_back({.num_tokens = num_tokens, .num_read = num_tokens, .prefix = prefix});
  waiting_.push_back(requests_.size() - 1);
  return requests_.size() - 1;
}

void Scheduler::AddToken(size_t request) { ++requests_[request].num_tokens; }

absl::StatusOr<size_t> Scheduler::Fork(size_t request) {
  const size_t fork = requests_.size();
  const Request& parent = requests_[request];
  if (static_cast<int64_t>(running_.size()) >= options_.max_sequences || parent.sequence < 0) {
    requests_.push_back({.num_tokens = parent.num_tokens, .num_read = parent.num_read});
    waiting_.push_back(fork);
    return fork;
  }
  PF_ASSIGN_OR_RETURN(const SequenceId sequence, cache_->Fork(parent.sequence));
  requests_.push_back(
      {.num_tokens = parent.num_tokens, .num_read = parent.num_read, .sequence = sequence});
  running_.push_back(fork);
  return fork;
}

void Scheduler::Finish(size_t request) {
  std::erase(running_, request);
  std::erase(waiting_, request);
  requests_[request].prefix.reset();
  if (requests_[request].sequence < 0) return;
  cache_->Remove(requests_[request].sequence);
  requests_[request].sequence = -1;
}

int64_t Scheduler::Computed(size_t request) const {
  const SequenceId sequence = requests_[request].sequence;
  return sequence < 0 ? 0 : cache_->Length(sequence);
}

bool Scheduler::Awaits(size_t request) const {
  const std::optional<SharedPrefix>& prefix = requests_[request].prefix;
  if (!prefix) return false;
  if (requests_[prefix->request].sequence < 0) return Awaits(prefix->request);
  return Computed(prefix->request) < prefix->length;
}

// Requests whose beginning has been computed go on from it. They take no blocks yet.
void Scheduler::ForkShared() {
  for (size_t i = 0; i < waiting_.size() && i < static_cast<size_t>(options_.max_sequences) &&
                     static_cast<int64_t>(running_.size()) < options_.max_sequences;) {
    Request& request = requests_[waiting_[i]];
    const std::optional<SharedPrefix> prefix = request.prefix;
    if (!prefix || Computed(prefix->request) < prefix->length) {
      ++i;
      continue;
    }
    request.prefix.reset();
    const auto sequence = cache_->ForkAt(requests_[prefix->request].sequence, prefix->length);
    if (!sequence.ok()) continue;  // a window has left it behind
    request.sequence = *sequence;
    shared_tokens_ += prefix->length;
    running_.push_back(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
  }
}

// As many tokens of the prompt as the next step may compute: no further than a beginning that others
// wait for, since a window keeps no more of it.
int64_t Scheduler::Piece(size_t request, int64_t budget) const {
  const int64_t computed = Computed(request);
  const int64_t left = requests_[request].num_read - computed;
  int64_t piece = PromptPiece(left, budget);
  for (size_t i = 0; i < waiting_.size() && i < static_cast<size_t>(options_.max_sequences); ++i) {
    const std::optional<SharedPrefix>& prefix = requests_[waiting_[i]].prefix;
    if (!prefix || prefix->request != request || prefix->length <= computed) continue;
    const int64_t stop = prefix->length - computed;
    if (stop >= 2 && left - stop != 1) piece = std::min(piece, PromptPiece(stop, budget));
  }
  return piece;
}

// Of what is left of a request that has more than its newest token to compute.
int64_t Scheduler::Share(size_t request, int64_t budget) const {
  const int64_t computed = Computed(request);
  if (computed < requests_[request].num_read) return Piece(request, budget);
  return std::min(requests_[request].num_tokens - computed, budget);
}

std::vector<StepEntry> Scheduler::Entries(const std::vector<Work>& work) const {
  std::vector<StepEntry> entries;
  for (const Work& item : work) {
    entries.push_back({.sequence = requests_[item.request].sequence,
                       .num_tokens = item.num_tokens,
                       .wants_logits = item.last,
                       .by_token = item.by_token});
  }
  return entries;
}

// Adds the request's next tokens to the step if the cache has room for all of it.
bool Scheduler::Admit(size_t request, int64_t num_tokens, std::vector<Work>& work) {
  const int64_t computed = Computed(request);
  work.push_back({.request = request,
                  .first_token = computed,
                  .num_tokens = num_tokens,
                  .by_token = computed >= requests_[request].num_read,
                  .last = computed + num_tokens == requests_[request].num_tokens});
  if (cache_->CanAppend(Entries(work))) return true;
  work.pop_back();
  return false;
}

void Scheduler::PreemptYoungest() {
  const size_t request = running_.back();
  running_.pop_back();
  cache_->Remove(requests_[request].sequence);
  requests_[request].sequence = -1;
  waiting_.push_front(request);
  ++preemptions_;
}

void Scheduler::PlanDecodes(int64_t& budget, std::vector<Work>& work) {
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const size_t request = running_[i];
    const int64_t computed = Computed(request);
    if (computed < requests_[request].num_read || requests_[request].num_tokens - computed != 1) {
      continue;
    }
    while (!Admit(request, 1, work)) {
      if (running_.size() <= i + 1) return;  // only older ones are left, and they have their slots
      PreemptYoungest();
    }
    --budget;
  }
}

void Scheduler::PlanPrefills(int64_t& budget, std::vector<Work>& work) {
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const size_t request = running_[i];
    const int64_t computed = Computed(request);
    const bool decodes =
        computed >= requests_[request].num_read && requests_[request].num_tokens - computed <= 1;
    const int64_t chunk = decodes ? 0 : Share(request, budget);
    if (chunk == 0) continue;
    // Blocks that an older request waits for are not given to a younger one.
    if (!Admit(request, chunk, work)) return;
    budget -= chunk;
  }
  for (size_t i = 0; budget > 0 && i < waiting_.size() &&
                     static_cast<int64_t>(running_.size()) < options_.max_sequences;) {
    const size_t request = waiting_[i];
    if (Awaits(request)) {
      ++i;
      continue;
    }
    const int64_t chunk = Piece(request, budget);
    if (chunk == 0) return;
    requests_[request].sequence = cache_->AddSequence();
    if (!Admit(request, chunk, work)) {
      cache_->Remove(requests_[request].sequence);
      requests_[request].sequence = -1;
      return;
    }
    requests_[request].prefix.reset();
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
    running_.push_back(request);
    budget -= chunk;
  }
}

absl::StatusOr<Scheduler::Step> Scheduler::Next() {
  Step step;
  if (done()) return step;
  ForkShared();
  int64_t budget = options_.max_tokens_per_step;
  PlanDecodes(budget, step.work);
  PlanPrefills(budget, step.work);
  // Prefills that block each other: the oldest goes on alone.
  while (step.work.empty() && running_.size() > 1) {
    PreemptYoungest();
    budget = options_.max_tokens_per_step;
    PlanDecodes(budget, step.work);
    PlanPrefills(budget, step.work);
  }
  if (step.work.empty()) {
    const size_t request = running_.empty() ? waiting_.front() : running_.front();
    return absl::ResourceExhaustedError(absl::StrCat("request ", request, " with ",
                                                     requests_[request].num_tokens,
                                                     " tokens does not fit in the cache alone"));
  }
  PF_ASSIGN_OR_RETURN(step.metadata, cache_->Append(Entries(step.work)));
  return step;
}

}  // namespace pagefuse
