// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
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
  for (const auto& [place, request] : running_) cache_->Remove(request->sequence);
}

size_t Scheduler::Add(const Text& text) {
  const size_t number = next_++;
  Request& request = requests_[number];
  request.text = text;
  request.text.shares = text.shares && cache_->tree() != nullptr;
  request.arrival = number;
  waiting_.insert({request.arrival, number});
  return number;
}

absl::StatusOr<size_t> Scheduler::Fork(size_t parent, const std::vector<int64_t>* tokens,
                                       Drafts* drafts) {
  const size_t number = next_++;
  Request fork = requests_.at(parent);
  fork.text.tokens = tokens;
  fork.text.drafts = drafts;
  fork.checkpoints.clear();
  if (fork.sequence >= 0 && !IsFull()) {
    PF_ASSIGN_OR_RETURN(fork.sequence, cache_->Fork(fork.sequence));
  } else {
    fork.sequence = -1;
    waiting_.insert({fork.arrival, number});
  }
  Request& added = requests_.emplace(number, std::move(fork)).first->second;
  if (added.sequence >= 0) running_[{added.arrival, number}] = &added;
  return number;
}

void Scheduler::Finish(size_t number) {
  const auto it = requests_.find(number);
  if (it == requests_.end()) return;
  const Request& request = it->second;
  if (request.sequence < 0) {
    waiting_.erase({request.arrival, number});
  } else {
    running_.erase({request.arrival, number});
    if (request.text.shares && request.text.shares_written) KeepAll(request);
    Withdraw(number, request);
    cache_->Remove(request.sequence);
  }
  requests_.erase(it);
}

int64_t Scheduler::shared_tokens(size_t request) const {
  const auto it = requests_.find(request);
  return it == requests_.end() ? 0 : it->second.shared_tokens;
}

PrefixText Scheduler::TextOf(const Request& request) const {
  return {*request.text.tokens, request.text.num_read, request.text.salt,
          !request.text.shares_written};
}

int64_t Scheduler::Computed(const Request& request) const {
  return request.sequence < 0 ? 0 : cache_->Length(request.sequence);
}

// Of what is left of a request that has more than its newest token to compute.
int64_t Scheduler::Share(const Turn& turn, int64_t most) {
  const int64_t read = turn.request->text.num_read;
  if (turn.computed < read) return PromptPiece(read - turn.computed, most);
  return std::min(turn.left, most);
}

// Requests that never ran have none.
void Scheduler::MakeHashes(Request& request) const {
  if (!request.text.shares || !request.hashes.empty()) return;
  const int64_t unit = cache_->tree()->unit();
  const Text& text = request.text;
  uint64_t hash = absl::HashOf(text.salt);
  for (int64_t first = 0; first + unit <= text.num_read; first += unit) {
    hash = absl::HashOf(hash, absl::MakeConstSpan(text.tokens->data() + first, unit));
    request.hashes.push_back(hash);
  }
}

void Scheduler::Announce(size_t number, const Request& request) {
  for (const uint64_t hash : request.hashes) {
    announced_.try_emplace(hash, Place{request.arrival, number});
  }
}

void Scheduler::Withdraw(size_t number, const Request& request) {
  for (const uint64_t hash : request.hashes) {
    const auto it = announced_.find(hash);
    if (it != announced_.end() && it->second.request == number) announced_.erase(it);
  }
}

// Whether another request is on its way to more of this one's beginning than what was `found`.
bool Scheduler::Awaits(Request& request, int64_t found) {
  if (!request.text.shares) return false;
  const auto is_behind = [&](const Place& place, int64_t length) {
    const auto it = requests_.find(place.request);
    return it != requests_.end() && it->second.sequence >= 0 && Computed(it->second) < length;
  };
  if (request.leader && is_behind(*request.leader, request.leader_length)) return true;
  request.leader.reset();
  const int64_t unit = cache_->tree()->unit();
  for (int64_t depth = (request.text.num_read - 2) / unit; depth * unit > found; --depth) {
    const auto it = announced_.find(request.hashes[depth - 1]);
    if (it == announced_.end() || !is_behind(it->second, depth * unit)) continue;
    request.leader = it->second;
    request.leader_length = depth * unit;
    requests_.at(it->second.request).checkpoints.insert(depth * unit);
    return true;
  }
  return false;
}

// Whole nodes of all that is computed, and where they end a checkpoint.
void Scheduler::KeepAll(const Request& request) {
  const int64_t unit = cache_->tree()->unit();
  const int64_t whole = Computed(request) / unit * unit;
  cache_->Publish(request.sequence, TextOf(request), whole);
  cache_->MakeCheckpoint(request.sequence, whole);
}

// What the tree keeps of tokens that were just computed: those that were read.
void Scheduler::KeepNodes(Request& request, int64_t from, int64_t to) {
  if (!request.text.shares) return;
  const PrefixTree& tree = *cache_->tree();
  const int64_t read = request.text.num_read;
  const int64_t shared = request.text.shares_written ? to : std::min(to, read);
  const int64_t end = shared / tree.unit() * tree.unit();
  if (end <= from) return;
  cache_->Publish(request.sequence, TextOf(request), end);
  const auto make = [&](int64_t length) {
    if (length > from && length <= end) cache_->MakeCheckpoint(request.sequence, length);
  };
  make((read - 2) / tree.unit() * tree.unit());
  make(end / tree.checkpoint_every() * tree.checkpoint_every());
  for (const int64_t length : request.checkpoints) make(length);
}

void Scheduler::Preempt(size_t number) {
  Request& request = requests_.at(number);
  if (request.text.shares) KeepAll(request);
  Withdraw(number, request);
  request.computed_before = Computed(request);
  cache_->Remove(request.sequence);
  request.sequence = -1;
  running_.erase({request.arrival, number});
  waiting_.insert({request.arrival, number});
  ++preemptions_;
}

// Starts a request if the cache has room for all that is known of it, beside what was promised.
bool Scheduler::Admit(size_t number, const PrefixTree::Hit& hit, int64_t& promised) {
  Request& request = requests_.at(number);
  const SequenceId sequence = cache_->AddSequence(hit);
  const int64_t needed =
      cache_->PagesToGrow(sequence, request.num_tokens(), options_.max_tokens_per_step);
  if (promised + needed > cache_->Available()) {
    cache_->Remove(sequence);
    return false;
  }
  request.sequence = sequence;
  request.leader.reset();
  if (hit.known > hit.length) request.checkpoints.insert(hit.known);
  if (!request.was_admitted) {
    request.was_admitted = true;
    request.shared_tokens = hit.length;
    shared_tokens_ += hit.length;
    lost_tokens_ += std::max<int64_t>(hit.known - hit.length, 0);
  }
  recomputed_tokens_ +=
      std::max<int64_t>(std::exchange(request.computed_before, 0) - hit.length, 0);
  Announce(number, request);
  waiting_.erase({request.arrival, number});
  running_[{request.arrival, number}] = &request;
  Promise(request, promised);
  return true;
}

// Adds what a request that runs may need soon.
void Scheduler::Promise(const Request& request, int64_t& promised) const {
  const int64_t most = std::max(request.text.most_tokens, request.num_tokens());
  const int64_t soon =
      request.num_tokens() + std::min(options_.growth_tokens, most - request.num_tokens());
  promised += cache_->PagesToGrow(request.sequence, soon, options_.max_tokens_per_step);
}

// First come, first served, but for those that wait for another one.
void Scheduler::AdmitWaiting() {
  if (waiting_.empty() || IsFull()) return;
  const auto most = static_cast<size_t>(options_.max_sequences);
  int64_t promised = 0;  // pages
  for (const auto& [place, request] : running_) Promise(*request, promised);
  std::vector<size_t> first;
  for (const Place& place : waiting_) {
    if (first.size() == most) break;
    first.push_back(place.request);
  }
  for (const size_t number : first) {
    if (IsFull()) return;
    Request& request = requests_.at(number);
    MakeHashes(request);
    PrefixTree::Hit hit;
    if (request.text.shares) hit = cache_->tree()->Find(TextOf(request));
    if (!Awaits(request, hit.length) && !Admit(number, hit, promised)) return;
  }
}

// Adds the request's next tokens to the step, with drafts behind its newest one, if the cache has room for
// all of them.
bool Scheduler::Take(const Turn& turn, int64_t num_tokens, Plan& plan,
                     std::vector<int64_t> drafts) {
  const auto count = static_cast<int64_t>(drafts.size());
  const bool last = num_tokens == turn.left;
  const bool by_token = turn.computed >= turn.request->text.num_read;
  const StepEntry entry = {.sequence = turn.request->sequence,
                           .num_tokens = num_tokens + count,
                           .wants_logits = last,
                           .wants_all_logits = count > 0,
                           .by_token = by_token};
  if (num_tokens == 0 || !plan.room.Take(entry)) return false;
  plan.entries.push_back(entry);
  plan.work.push_back({.request = turn.place.request,
                       .first_token = turn.computed,
                       .num_tokens = entry.num_tokens,
                       .by_token = by_token,
                       .last = last,
                       .drafts = std::move(drafts)});
  plan.rows += entry.num_tokens;
  plan.budget -= entry.num_tokens;
  return true;
}

// Of those younger than one that needs blocks, which have none of this step yet, the one that loses
// least; of equal ones the youngest.
bool Scheduler::MakeRoom(const Place& who) {
  std::optional<size_t> victim;
  int64_t least = 0;
  for (auto it = running_.upper_bound(who); it != running_.end(); ++it) {
    const Request& request = *it->second;
    const int64_t computed = Computed(request);
    const int64_t loss = request.text.shares ? computed % cache_->tree()->unit() : computed;
    if (victim && loss > least) continue;
    victim = it->first.request;
    least = loss;
  }
  if (victim) Preempt(*victim);
  return victim.has_value();
}

// Each step computes a token of the oldest one. Others make room for that, and where none is left it
// takes a smaller piece.
void Scheduler::PlanOldest(int64_t most, int64_t draft_rows, Plan& plan) {
  if (plan.turns.empty()) return;
  const Turn& oldest = plan.turns.front();
  if (draft_rows > 0) {
    const auto count = static_cast<int64_t>(plan.turns.size());
    if (TakeDecode(oldest, DraftsOf(draft_rows, count, plan), plan)) return;
  }
  int64_t share = Share(oldest, most);
  while (share > 0 && !Take(oldest, share, plan)) {
    if (!MakeRoom(oldest.place)) share = share == 1 ? 0 : Share(oldest, share / 2);
  }
}

// The newest token of a request, with drafts behind it if there is room for them.
bool Scheduler::TakeDecode(const Turn& turn, int64_t most_drafts, Plan& plan) {
  std::vector<int64_t> drafts = Propose(*turn.request, most_drafts);
  if (!drafts.empty() && Take(turn, 1, plan, std::move(drafts))) return true;
  return Take(turn, 1, plan);
}

std::vector<int64_t> Scheduler::Propose(const Request& request, int64_t most) {
  const Text& text = request.text;
  if (most <= 0 || text.drafts == nullptr) return {};
  // The last token that comes is not run.
  return text.drafts->Propose(*text.tokens,
                              std::min(most, text.most_tokens - request.num_tokens()));
}

// Drafts of one of the sequences that are not planned yet, of the rows that are left for all.
int64_t Scheduler::DraftsOf(int64_t draft_rows, int64_t unplanned, const Plan& plan) {
  const int64_t left = std::min(draft_rows - plan.rows - unplanned, plan.budget - unplanned);
  return left <= 0 ? 0 : std::min(Drafts::kMost, (left + unplanned - 1) / unplanned);
}

void Scheduler::PlanDecodes(int64_t draft_rows, Plan& plan) {
  for (size_t i = 1; i < plan.turns.size(); ++i) {
    const Turn& turn = plan.turns[i];
    if (turn.request->sequence < 0 || !turn.decodes) continue;  // one gave its blocks back
    const auto others = static_cast<int64_t>(plan.turns.size() - i);
    const int64_t drafts = draft_rows > 0 ? DraftsOf(draft_rows, others, plan) : 0;
    while (!TakeDecode(turn, drafts, plan)) {
      if (!MakeRoom(turn.place)) break;  // only older ones are left, and they have their slots
    }
  }
}

// Behind the oldest, which has its share. Blocks that an older one waits for are not given to a
// younger one.
void Scheduler::PlanPrompts(int64_t most_of_first, Plan& plan) {
  for (size_t i = 1; i < plan.turns.size() && plan.budget > 0; ++i) {
    const Turn& turn = plan.turns[i];
    if (turn.request->sequence < 0 || turn.decodes) continue;
    const int64_t share = Share(turn, std::min(most_of_first, plan.budget));
    most_of_first = plan.budget;
    if (share > 0 && !Take(turn, share, plan)) return;
  }
}

// What the first of the prompts may take: all that is left beside sequences that decode, but half of
// it where others have prompts.
int64_t Scheduler::MostOfFirst(const std::vector<Turn>& turns, int64_t most_tokens) {
  constexpr int64_t kLeast = 3;  // a piece of 2 of these, or all
  int64_t left = most_tokens, prompts = 0;
  bool is_first = true;
  for (const Turn& turn : turns) {
    if (turn.decodes) {
      --left;
    } else if (!std::exchange(is_first, false)) {
      prompts += turn.left;
    }
  }
  return std::max(left - std::min(prompts, left / 2), kLeast);
}

std::vector<Scheduler::Turn> Scheduler::Turns() const {
  std::vector<Turn> turns;
  turns.reserve(running_.size());
  for (const auto& [place, request] : running_) {
    const int64_t computed = Computed(*request);
    const int64_t left = request->num_tokens() - computed;
    const bool decodes = left == 1 && request->num_tokens() > request->text.num_read;
    turns.push_back({place, request, computed, left, decodes});
  }
  return turns;
}

// Sequences of one new token, and those with drafts, stand before the others.
void Scheduler::DecodesFirst(Plan& plan) {
  const auto decodes = [](const Work& work) {
    return work.by_token && (work.num_tokens == 1 || !work.drafts.empty());
  };
  if (std::ranges::all_of(plan.work, decodes)) return;
  std::vector<Work> work;
  std::vector<StepEntry> entries;
  for (const bool first : {true, false}) {
    for (size_t i = 0; i < plan.entries.size(); ++i) {
      if (decodes(plan.work[i]) != first) continue;
      entries.push_back(plan.entries[i]);
      work.push_back(plan.work[i]);
    }
  }
  plan.work = std::move(work);
  plan.entries = std::move(entries);
}

absl::StatusOr<Scheduler::Step> Scheduler::Next(int64_t most_tokens) {
  Step step;
  if (done()) return step;
  AdmitWaiting();
  Plan plan(*cache_);
  plan.turns = Turns();
  plan.budget = options_.max_tokens_per_step;
  const auto decodes = [](const Turn& turn) { return turn.decodes; };
  const bool only_decodes = std::ranges::all_of(plan.turns, decodes);
  // Sequences that decode, and a piece of a prompt: that is there in any case.
  const auto least = static_cast<int64_t>(plan.turns.size()) + 3;
  if (!only_decodes && std::ranges::any_of(plan.turns, decodes))
    plan.budget = std::min(plan.budget, std::max(most_tokens, least));
  const int64_t most_of_first = MostOfFirst(plan.turns, plan.budget);
  const int64_t draft_rows = only_decodes ? options_.max_draft_rows : 0;
  PlanOldest(most_of_first, draft_rows, plan);
  PlanDecodes(draft_rows, plan);
  const bool had_first = !plan.turns.empty() && !plan.turns.front().decodes;
  PlanPrompts(had_first ? plan.budget : most_of_first, plan);
  if (plan.work.empty()) {
    const size_t request = WhoIsStuck();
    return absl::ResourceExhaustedError(absl::StrCat("request ", request, " with ",
                                                     requests_.at(request).num_tokens(),
                                                     " tokens does not fit in the cache alone"));
  }
  DecodesFirst(plan);
  step.metadata = &cache_->Reserve(plan.entries, plan.room);
  step.work = std::move(plan.work);
  return step;
}

std::optional<Scheduler::Step> Scheduler::Ahead(const Step& step) {
  if (running_.size() != step.work.size()) return std::nullopt;
  Plan plan(*cache_);
  bool some_end = false;
  for (const Work& work : step.work) {
    const auto it = requests_.find(work.request);
    const bool decodes = work.by_token && work.last && work.num_tokens == 1;
    // What is written and shared is kept in whole blocks before the next token is given a slot.
    if (it == requests_.end() || !decodes || it->second.text.shares_written) return std::nullopt;
    Request& request = it->second;
    const int64_t computed = work.first_token + 1;
    const bool ends = computed >= request.text.most_tokens;
    some_end = some_end || ends;
    if (ends) continue;
    const Turn turn = {{request.arrival, work.request}, &request, computed, 1, true};
    if (!Take(turn, 1, plan)) return std::nullopt;
  }
  const bool some_come = !waiting_.empty() && (some_end || !IsFull());
  if (some_come || plan.work.empty()) return std::nullopt;
  const StepMetadata& metadata = cache_->Reserve(plan.entries, plan.room);
  return Step{.work = std::move(plan.work), .metadata = &metadata};
}

bool Scheduler::Holds(const Step& ahead) const {
  if (running_.size() != ahead.work.size() || (!waiting_.empty() && !IsFull())) return false;
  return std::ranges::all_of(ahead.work, [this](const Work& work) {
    const auto it = requests_.find(work.request);
    return it != requests_.end() && it->second.sequence >= 0 &&
           it->second.num_tokens() == work.first_token + 1;
  });
}

bool Scheduler::HasDrafts(const Step& ahead) const {
  auto left = static_cast<int64_t>(ahead.work.size());
  const int64_t rows = options_.max_draft_rows - left;
  if (rows <= 0) return false;
  return std::ranges::any_of(ahead.work, [&](const Work& work) {
    const int64_t most = std::min(Drafts::kMost, (rows + left - 1) / left);
    --left;
    return !Propose(requests_.at(work.request), most).empty();
  });
}

size_t Scheduler::WhoIsStuck() const {
  return running_.empty() ? waiting_.begin()->request : running_.begin()->first.request;
}

void Scheduler::Commit(const Step& step) {
  for (const Work& work : step.work) {
    const auto it = requests_.find(work.request);
    if (it == requests_.end()) continue;
    const int64_t computed = work.first_token + work.num_tokens;
    KeepNodes(it->second, work.first_token, std::min(computed, it->second.num_tokens()));
  }
  cache_->Commit();
}

void Scheduler::Accept(const Work& work, int64_t drafts) {
  const auto it = requests_.find(work.request);
  const auto count = static_cast<int64_t>(work.drafts.size());
  if (it == requests_.end() || count == 0) return;
  it->second.text.drafts->Tell(count, drafts);
  if (drafts == count) return;
  const absl::Status status =
      cache_->Return(it->second.sequence, work.first_token + work.num_tokens - count + drafts);
  PF_CHECK(status.ok());  // the cache keeps as many rows behind windows
}

}  // namespace pagefuse
