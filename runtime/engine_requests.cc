// SPDX-License-Identifier: Apache-2.0
// Requests of an engine: how they come, what their sinks are told, and how they end.
#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine_impl.h"

namespace pagefuse {

absl::StatusOr<RequestId> Engine::Submit(Request request, Sink sink) {
  return impl_->Submit(std::move(request), std::move(sink),
                       impl_->options.prefix_reuse != PrefixReuse::kOff);
}

void Engine::Cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.push_back(id);
}

absl::StatusOr<RequestId> Engine::Impl::Submit(Request request, Sink sink, bool shares) {
  PF_RETURN_IF_ERROR(Check(request));
  auto item = std::make_unique<Active>();
  item->request = std::move(request);
  item->sink = std::move(sink);
  item->shares = shares;
  item->samples = Begin({item->request}, [](const Request&) { return absl::OkStatus(); });
  item->drafts.resize(item->samples.size());
  const std::lock_guard lock(mutex);
  item->id = next_id++;
  const RequestId id = item->id;
  submitted.push_back(std::move(item));
  return id;
}

void Engine::Impl::TakeSubmitted() {
  std::vector<std::unique_ptr<Active>> items;
  {
    const std::lock_guard lock(mutex);
    items.swap(submitted);
  }
  if (!items.empty()) EndRereading();
  for (auto& item : items) Add(std::move(item));
}

void Engine::Impl::Add(std::unique_ptr<Active> item) {
  Active& added = *item;
  added.left = static_cast<int64_t>(added.samples.size());
  added.ended.resize(added.samples.size());
  active.emplace(added.id, std::move(item));
  if (added.samples[0].done) {  // no new tokens are wanted
    for (size_t sample = 0; sample < added.samples.size(); ++sample) EndSample(added, sample);
    return RemoveIfDone(added);
  }
  const Progress& first = added.samples[0];
  const size_t number =
      scheduler->Add({.tokens = &first.tokens,
                      .num_read = static_cast<int64_t>(first.tokens.size()),
                      .most_tokens = TokensToRun(added.request),
                      .salt = added.request.cache_salt,
                      .shares = added.shares,
                      .shares_written = options.prefix_reuse == PrefixReuse::kAll,
                      .drafts = added.drafts.empty() ? nullptr : added.drafts.data()});
  added.numbers = {number};
  owners[number] = {&added, 0};
}

// Somebody came for whom there is work.
void Engine::Impl::EndRereading() {
  if (active.size() != 1 || !active.begin()->second->rereads) return;
  End(active.begin()->first, FinishReason::kCancelled, absl::OkStatus());
}

// Begins to read the newest answer of which the cache does not know all that it may; false if none is
// left. What is known of a text that was stopped here stays.
bool Engine::Impl::Reread() {
  PrefixTree* tree = model->cache().tree();
  if (tree == nullptr || options.prefix_reuse != PrefixReuse::kExact) return false;
  while (!answers.empty()) {
    Answer answer = std::move(answers.back());
    answers.pop_back();
    const auto length = static_cast<int64_t>(answer.tokens.size());
    const PrefixTree::Hit hit = tree->Find({answer.tokens, length, answer.salt});
    if ((length - 2) / tree->unit() * tree->unit() <= hit.length) continue;
    auto item = std::make_unique<Active>();
    item->request = {.prompt = std::move(answer.tokens),
                     .max_new_tokens = 1,
                     .cache_salt = std::move(answer.salt)};
    if (!Check(item->request).ok()) continue;
    item->rereads = true;
    item->samples = Begin({item->request}, [](const Request&) { return absl::OkStatus(); });
    {
      const std::lock_guard lock(mutex);
      item->id = next_id++;
    }
    Add(std::move(item));
    return true;
  }
  return false;
}

void Engine::Impl::TakeCancelled() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex);
    // One that came meanwhile, and that no step has taken, is ended when one has.
    const auto is_new = [this](RequestId id) {
      return !submitted.empty() && id >= submitted.front()->id && id < next_id;
    };
    const auto kept = std::partition(cancelled.begin(), cancelled.end(), is_new);
    ids.assign(kept, cancelled.end());
    cancelled.erase(kept, cancelled.end());
  }
  for (const RequestId id : ids) End(id, FinishReason::kCancelled, absl::OkStatus());
}

void Engine::Impl::EndSample(Active& item, size_t sample) {
  item.ended[sample] = true;
  if (sample < item.numbers.size()) {
    scheduler->Finish(item.numbers[sample]);
    owners.erase(item.numbers[sample]);
  }
  --item.left;
  Progress& progress = item.samples[sample];
  const FinishReason finish = progress.completion.finish;
  const bool whole = finish == FinishReason::kLength || finish == FinishReason::kStop ||
                     finish == FinishReason::kEnded;
  const bool answered = !progress.completion.tokens.empty();
  if (options.rereads && item.shares && !item.rereads && whole && answered) {
    constexpr size_t kMostAnswers = 64;
    answers.push_back({progress.tokens, item.request.cache_salt});
    if (answers.size() > kMostAnswers) answers.pop_front();
  }
  if (!item.sink.on_done) return;
  // Nobody is left to tell of what this throws.
  Guarded([&] {
    item.sink.on_done(static_cast<int64_t>(sample), std::move(item.samples[sample].completion));
  }).IgnoreError();
}

void Engine::Impl::RemoveIfDone(const Active& item) {
  if (item.left == 0) active.erase(active.find(item.id));
}

void Engine::Impl::End(RequestId id, FinishReason finish, const absl::Status& error) {
  const auto it = active.find(id);
  if (it == active.end()) return;
  Active& item = *it->second;
  Tell(item);
  for (Progress& progress : item.samples) {
    if (progress.done) continue;
    progress.done = true;
    progress.completion.finish = finish;
    progress.completion.error = error;
  }
  EndDone(item);
  RemoveIfDone(item);
}

void Engine::Impl::EndDone(Active& item) {
  for (size_t sample = 0; sample < item.samples.size(); ++sample) {
    if (item.samples[sample].done && !item.ended[sample]) EndSample(item, sample);
  }
}

void Engine::Impl::Tell(Active& item) {
  for (const Active::NewToken& told : std::exchange(item.untold, {})) {
    Progress& progress = item.samples[told.sample];
    Completion& completion = progress.completion;
    const TokenLogprobs* logprobs =
        completion.logprobs.empty() ? nullptr : &completion.logprobs[told.index];
    bool goes_on = true;
    const absl::Status status = Guarded([&] {
      goes_on = item.sink.on_token({told.sample, completion.tokens[told.index], logprobs});
    });
    if (!status.ok()) {
      Fail(progress, status);
    } else if (!goes_on) {
      // A token that does not run is none to go on with.
      completion.error = absl::OkStatus();
      if (completion.finish != FinishReason::kStop) completion.finish = FinishReason::kEnded;
      progress.done = true;
    }
  }
}

void Engine::Impl::TellAll() {
  for (const RequestId id : std::exchange(untold, {})) {
    const auto it = active.find(id);
    if (it == active.end()) continue;
    Active& item = *it->second;
    Tell(item);
    EndDone(item);
    RemoveIfDone(item);
  }
}

void Engine::Impl::TellStarts(const Scheduler::Step& step) {
  for (const Scheduler::Work& work : step.work) {
    Active& item = *owners.at(work.request).active;
    if (std::exchange(item.started, true) || !item.sink.on_start) continue;
    // It decides nothing.
    Guarded([&] { item.sink.on_start(); }).IgnoreError();
  }
}

}  // namespace pagefuse
