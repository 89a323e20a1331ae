// SPDX-License-Identifier: Apache-2.0
// Engine::Submit, Cancel and Step.
#include <algorithm>
#include <exception>
#include <utility>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine_impl.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Calls what the caller gave; what it throws becomes a status.
template <class Call>
absl::Status Guarded(const Call& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::AbortedError(StrCat("sink: threw \"", error.what(), "\""));
  } catch (...) {
    return absl::AbortedError("sink: threw");
  }
}

void Fail(Progress& progress, absl::Status error) {
  progress.completion.error = std::move(error);
  progress.completion.finish = FinishReason::kFailed;
  progress.done = true;
}

}  // namespace

absl::StatusOr<RequestId> Engine::Submit(Request request, Sink sink) {
  return impl_->Submit(std::move(request), std::move(sink),
                       impl_->options.prefix_reuse != PrefixReuse::kOff);
}

void Engine::Cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.push_back(id);
}

StepReport Engine::Step() { return impl_->Step(); }

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
  active.emplace(added.id, std::move(item));
  if (added.samples[0].done) {  // no new tokens are wanted
    for (size_t sample = 0; sample < added.samples.size(); ++sample) EndSample(added, sample);
    return RemoveIfDone(added.id);
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

void Engine::Impl::RemoveIfDone(RequestId id) {
  const auto it = active.find(id);
  if (it != active.end() && it->second->left == 0) active.erase(it);
}

void Engine::Impl::End(RequestId id, FinishReason finish, const absl::Status& error) {
  const auto it = active.find(id);
  if (it == active.end()) return;
  Active& item = *it->second;
  for (size_t sample = 0; sample < item.samples.size(); ++sample) {
    Progress& progress = item.samples[sample];
    if (progress.done) continue;
    progress.done = true;
    progress.completion.finish = finish;
    progress.completion.error = error;
    EndSample(item, sample);
  }
  RemoveIfDone(id);
}

absl::StatusOr<std::unique_ptr<StepLogits>> Engine::Impl::RunStep(const Scheduler::Step& step) {
  std::vector<int64_t> input_ids;
  for (const Scheduler::Work& work : step.work) {
    const Owner& owner = owners.at(work.request);
    const auto first = owner.active->samples[owner.sample].tokens.begin() + work.first_token;
    const auto drafts = static_cast<int64_t>(work.drafts.size());
    input_ids.insert(input_ids.end(), first, first + work.num_tokens - drafts);
    input_ids.insert(input_ids.end(), work.drafts.begin(), work.drafts.end());
  }
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN_OR_RETURN(std::unique_ptr<StepLogits> logits,
                      model->RunStep(input_ids, *step.metadata));
  if (logits->columns() == 0) {
    return absl::FailedPreconditionError("engine: logits: expected at least one column, got none");
  }
  if (logits->draws_at_once()) DrawAhead(step, *logits);
  PF_RETURN_IF_ERROR(logits->Settle());
  const double seconds = Seconds(start);
  const auto tokens = static_cast<int64_t>(input_ids.size());
  ++stats.steps;
  const bool decode = input_ids.size() == step.metadata->seq_lens.size();
  (decode ? stats.decode_seconds : stats.prefill_seconds) += seconds;
  if (!decode) read_tokens_per_second = static_cast<double>(tokens) / std::max(seconds, 1e-9);
  (decode ? stats.decode_tokens : stats.prefill_tokens) += tokens;
  stats.peak_pages = std::max(stats.peak_pages, model->cache().pool().num_held());
  if (options.on_step) {
    stopped = options.on_step(
        {&model->session(), decode, tokens, step_shared, start, seconds, model->device_seconds()});
    PF_RETURN_IF_ERROR(stopped);
  }
  return logits;
}

// The prompt is computed: the other samples go on from here. Their places.
std::vector<size_t> Engine::Impl::ForkSamples(Active& item) {
  std::vector<size_t> samples = {0};
  for (size_t sample = 1; sample < item.samples.size(); ++sample) {
    const auto number =
        scheduler->Fork(item.numbers[0], &item.samples[sample].tokens, &item.drafts[sample]);
    PF_CHECK(number.ok());  // the sequence is there
    item.numbers.push_back(*number);
    owners[*number] = {&item, sample};
    samples.push_back(sample);
  }
  return samples;
}

void Engine::Impl::TakeToken(Draw draw, StepLogits& logits) {
  Active& item = *draw.item;
  Progress& progress = item.samples[draw.sample];
  const absl::Status told = Guarded([&] {
    AddToken(item.request, std::move(draw.token), logits, draw.row, progress, draw.sample,
             item.sink.on_token);
  });
  if (!told.ok()) return Fail(progress, told);
  if (progress.done || model->Runs(progress.tokens.back())) return;
  const absl::Status why = model->CheckTokens({&progress.tokens.back(), 1});
  Fail(progress,
       absl::FailedPreconditionError(StrCat("new token ", progress.completion.tokens.size() - 1,
                                            ": ", StdView(why.message()))));
}

// A draft is kept while it is what is drawn behind what was before it: the same token, by the same
// logits, as without drafts.
void Engine::Impl::TakeDrafts(const Scheduler::Work& work, StepLogits& logits, int64_t first) {
  const Owner owner = owners.at(work.request);
  Active& item = *owner.active;
  Progress& progress = item.samples[owner.sample];
  const auto drafts = static_cast<int64_t>(work.drafts.size());
  int64_t right = 0;
  while (true) {
    std::vector<Draw> draw = {{&item, owner.sample, first + right}};
    if (logits.draws_at_once()) DrawAtOnce(logits, draw);
    SampleAll(logits, draw);
    TakeToken(std::move(draw[0]), logits);
    if (progress.done || right == drafts || progress.tokens.back() != work.drafts[right]) break;
    ++right;
  }
  scheduler->Accept(work, right);
  stats.draft_tokens += drafts;
  stats.drafts_right += right;
  stats.decode_tokens -= drafts - right;
  if (progress.done) EndSample(item, owner.sample);
  RemoveIfDone(item.id);
}

bool Engine::Impl::AddDraws(const Scheduler::Work& work, int64_t row, std::vector<Draw>& draws) {
  const Owner owner = owners.at(work.request);
  Active& item = *owner.active;
  if (item.rereads || !work.drafts.empty()) return false;
  std::vector<size_t> samples = {owner.sample};
  if (item.numbers.size() == 1) {
    for (Progress& progress : item.samples) {
      progress.completion.cached_tokens = scheduler->shared_tokens(work.request);
    }
    samples = ForkSamples(item);
  }
  for (const size_t sample : samples) draws.push_back({&item, sample, row});
  return samples.size() > 1;
}

void Engine::Impl::DrawAhead(const Scheduler::Step& step, StepLogits& logits) {
  std::vector<Draw> draws;
  int64_t row = 0;
  for (const Scheduler::Work& work : step.work) {
    if (!work.last) continue;
    const int64_t first = std::exchange(row, row + 1 + static_cast<int64_t>(work.drafts.size()));
    const Owner owner = owners.at(work.request);
    const bool branches = owner.active->numbers.size() < owner.active->samples.size();
    if (owner.active->rereads || !work.drafts.empty() || branches) continue;
    draws.push_back({owner.active, owner.sample, first});
  }
  DrawAtOnce(logits, draws);
}

// What fails here fails again where each is drawn by itself, and is told there.
void Engine::Impl::DrawAtOnce(StepLogits& logits, const std::vector<Draw>& draws) {
  std::vector<StepLogits::RowDraw> rows;
  for (const Draw& draw : draws) {
    const Request& request = draw.item->request;
    Progress& progress = draw.item->samples[draw.sample];
    if (progress.constraint) continue;  // it may throw, and is asked for each by itself
    const absl::StatusOr<TokenLimits> limits = LimitsOf(request, progress);
    if (!limits.ok()) continue;
    rows.push_back({draw.row, &progress.sampler, progress.tokens, request.prompt.size(), *limits});
  }
  if (rows.empty()) return;
  stats.device_draws += logits.DrawAtOnce(rows).value_or(0);
}

// A row is a megabyte where a vocabulary is large: rows are shared among the threads of the graph.
void Engine::Impl::SampleAll(StepLogits& logits, std::vector<Draw>& draws) {
  const auto sample = [&](Draw& draw) {
    const absl::Status drawn = Guarded([&] {
      draw.token =
          SampleToken(draw.item->request, logits, draw.row, draw.item->samples[draw.sample]);
    });
    if (!drawn.ok()) draw.token = drawn;
  };
  if (draws.size() < 2 || !logits.samples_side_by_side()) {
    for (Draw& draw : draws) sample(draw);
    return;
  }
  const ScopedWorkerPool pool(model->session().workers());
  constexpr int64_t kBytes = sizeof(float);
  ParallelFor(static_cast<int64_t>(draws.size()), logits.columns() * kBytes,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) sample(draws[i]);
              });
}

size_t Engine::Impl::TakeDraws(std::vector<Draw>& draws, size_t first, size_t end,
                               StepLogits& logits) {
  Active& item = *draws[first].item;
  for (size_t i = first; i < end; ++i) TakeToken(std::move(draws[i]), logits);
  for (size_t i = first; i < end; ++i) {
    if (item.samples[draws[i].sample].done) EndSample(item, draws[i].sample);
  }
  RemoveIfDone(item.id);
  return end;
}

void Engine::Impl::TakeLogits(const Scheduler::Step& step, StepLogits& logits) {
  struct Row {
    const Scheduler::Work* work;
    int64_t first;
    size_t draws;  // one behind its last
  };
  std::vector<Row> rows;
  std::vector<Draw> draws, branching;
  int64_t row = 0;
  for (const Scheduler::Work& work : step.work) {
    if (!work.last) continue;
    const int64_t first = std::exchange(row, row + 1 + static_cast<int64_t>(work.drafts.size()));
    if (!owners.contains(work.request)) continue;  // cancelled meanwhile
    const size_t before = draws.size();
    if (AddDraws(work, first, draws)) {
      for (size_t i = before; i < draws.size(); ++i) {
        branching.push_back({draws[i].item, draws[i].sample, draws[i].row});
      }
    }
    rows.push_back({&work, first, draws.size()});
  }
  if (logits.draws_at_once()) DrawAtOnce(logits, branching);
  SampleAll(logits, draws);
  size_t next = 0;
  for (const Row& one : rows) {
    const Owner owner = owners.at(one.work->request);
    if (owner.active->rereads) {
      End(owner.active->id, FinishReason::kLength, absl::OkStatus());
    } else if (!one.work->drafts.empty()) {
      TakeDrafts(*one.work, logits, one.first);
    } else {
      next = TakeDraws(draws, next, one.draws, logits);
    }
  }
}

absl::StatusOr<Scheduler::Step> Engine::Impl::Plan() {
  constexpr double kMost = 1e9;
  const double tokens = read_tokens_per_second * options.step_seconds;
  const int64_t shared = scheduler->shared_tokens();
  auto step = scheduler->Next(static_cast<int64_t>(tokens > 0 ? std::min(tokens, kMost) : kMost));
  step_shared = scheduler->shared_tokens() - shared;
  stats.shared_tokens += step_shared;
  return step;
}

void Engine::Impl::TellStarts(const Scheduler::Step& step) {
  for (const Scheduler::Work& work : step.work) {
    Active& item = *owners.at(work.request).active;
    if (std::exchange(item.started, true) || !item.sink.on_start) continue;
    // It decides nothing.
    Guarded([&] { item.sink.on_start(); }).IgnoreError();
  }
}

void Engine::Impl::FailStep(const Scheduler::Step& step, const absl::Status& error) {
  scheduler->RollBack();
  const auto tokens = static_cast<int64_t>(step.metadata->positions.size());
  const int64_t bad = TokenOf(error).value_or(tokens);
  int64_t end = 0;
  for (const Scheduler::Work& work : step.work) {
    const int64_t begin = std::exchange(end, end + work.num_tokens);
    if (bad < tokens && (bad < begin || bad >= end)) continue;
    const auto owner = owners.find(work.request);
    if (owner == owners.end()) continue;
    Active& item = *owner->second.active;
    const auto drafts = static_cast<int64_t>(work.drafts.size());
    if (bad < tokens && bad >= end - drafts) {
      // A guess was wrong: nothing is guessed in the step that takes this one's place.
      item.drafts[owner->second.sample].Tell(drafts, 0);
    } else {
      End(item.id, FinishReason::kFailed, WithoutToken(error));
    }
  }
}

StepReport Engine::Impl::Step() {
  TakeSubmitted();
  TakeCancelled();
  if (scheduler->done() && options.rereads) Reread();
  const bool rereads = active.size() == 1 && active.begin()->second->rereads;
  const auto report = [&](int64_t tokens) {
    return StepReport{tokens, static_cast<int64_t>(scheduler->num_running()),
                      static_cast<int64_t>(scheduler->num_waiting()), rereads};
  };
  if (scheduler->done()) return report(0);
  const auto planned = std::chrono::steady_clock::now();
  const absl::StatusOr<Scheduler::Step> step = Plan();
  stats.plan_seconds += Seconds(planned);
  if (!step.ok()) {
    End(owners.at(scheduler->WhoIsStuck()).active->id, FinishReason::kFailed, step.status());
    return report(0);
  }
  TellStarts(*step);
  const absl::StatusOr<std::unique_ptr<StepLogits>> logits = RunStep(*step);
  if (!logits.ok()) {
    FailStep(*step, logits.status());
    return report(0);
  }
  const auto sampled = std::chrono::steady_clock::now();
  scheduler->Commit(*step);
  TakeCancelled();
  TakeLogits(*step, **logits);
  stats.sample_seconds += Seconds(sampled);
  return report(static_cast<int64_t>(step->metadata->positions.size()));
}

}  // namespace pagefuse
