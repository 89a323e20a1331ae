// SPDX-License-Identifier: Apache-2.0
// What an engine makes of the logits of a step.
#include <algorithm>
#include <utility>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine_impl.h"

namespace pagefuse {

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
  const size_t known = progress.completion.tokens.size();
  const absl::Status added = Guarded([&] {
    AddToken(item.request, *std::move(draw.token), logits, draw.row, progress, draw.sample,
             nullptr);
  });
  if (!added.ok()) return Fail(progress, added);
  if (item.sink.on_token && progress.completion.tokens.size() > known) {
    item.untold.push_back({draw.sample, known});
    untold.push_back(item.id);
  }
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
    Tell(item);
    if (progress.done || right == drafts || progress.tokens.back() != work.drafts[right]) break;
    ++right;
  }
  scheduler->Accept(work, right);
  stats.draft_tokens += drafts;
  stats.drafts_right += right;
  stats.decode_tokens -= drafts - right;
  EndDone(item);
  RemoveIfDone(item);
}

bool Engine::Impl::AddDraws(const Scheduler::Work& work, int64_t row, std::vector<Draw>& draws) {
  const Owner owner = owners.at(work.request);
  Active& item = *owner.active;
  if (item.rereads || !work.drafts.empty()) return false;
  if (item.numbers.size() > 1 || !item.samples[owner.sample].completion.tokens.empty()) {
    draws.push_back({&item, owner.sample, row});
    return false;
  }
  for (Progress& progress : item.samples) {
    progress.completion.cached_tokens = scheduler->shared_tokens(work.request);
  }
  const std::vector<size_t> samples = ForkSamples(item);
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
  bool some_end = false;
  for (size_t i = first; i < end; ++i) {
    const size_t sample = draws[i].sample;
    TakeToken(std::move(draws[i]), logits);
    some_end = some_end || item.samples[sample].done;
  }
  if (!ahead || some_end) Tell(item);
  EndDone(item);
  RemoveIfDone(item);
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
  rows.reserve(step.work.size());
  draws.reserve(step.work.size());
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

}  // namespace pagefuse
