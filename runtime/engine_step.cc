// SPDX-License-Identifier: Apache-2.0
// Engine::Step.
#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine_impl.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

StepReport Engine::Step() { return impl_->Step(); }

absl::StatusOr<std::unique_ptr<StepLogits>> Engine::Impl::RunStep(const Scheduler::Step& step,
                                                                  bool is_prepared) {
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
                      is_prepared ? model->RunPrepared(input_ids, *step.metadata)
                                  : model->RunStep(input_ids, *step.metadata));
  if (logits->columns() == 0) {
    return absl::FailedPreconditionError("engine: logits: expected at least one column, got none");
  }
  if (logits->draws_at_once()) {
    DrawAhead(step, *logits);
    CommitLast();
    TellAll();
    PlanAhead(step);
  }
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

// While the device is at a step.
void Engine::Impl::PlanAhead(const Scheduler::Step& step) {
  const auto planned = std::chrono::steady_clock::now();
  if (auto next = scheduler->Ahead(step)) {
    const bool is_prepared = model->Prepare(*next->metadata);
    ahead = Ahead{*std::move(next), is_prepared};
  }
  stats.plan_seconds += Seconds(planned);
}

void Engine::Impl::DropAhead() {
  if (!ahead) return;
  scheduler->RollBack();
  ahead.reset();
  CommitLast();
}

void Engine::Impl::CommitLast() {
  if (!uncommitted) return;
  scheduler->Commit(*uncommitted);
  uncommitted.reset();
}

absl::StatusOr<Scheduler::Step> Engine::Impl::Plan() {
  step_shared = 0;
  if (ahead) {
    Scheduler::Step step = std::move(ahead->step);
    ahead.reset();
    return step;
  }
  constexpr double kMost = 1e9;
  const double tokens = read_tokens_per_second * options.step_seconds;
  const int64_t shared = scheduler->shared_tokens();
  auto step = scheduler->Next(static_cast<int64_t>(tokens > 0 ? std::min(tokens, kMost) : kMost));
  step_shared = scheduler->shared_tokens() - shared;
  stats.shared_tokens += step_shared;
  return step;
}

void Engine::Impl::FailStep(const Scheduler::Step& step, const absl::Status& error) {
  DropAhead();
  TellAll();
  scheduler->RollBack();
  CommitLast();
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
  if (ahead && !scheduler->Holds(ahead->step)) DropAhead();
  if (!ahead) TellAll();
  const bool rereads = active.size() == 1 && active.begin()->second->rereads;
  const auto report = [&](int64_t tokens) {
    return StepReport{tokens, static_cast<int64_t>(scheduler->num_running()),
                      static_cast<int64_t>(scheduler->num_waiting()), rereads};
  };
  if (scheduler->done()) return report(0);
  const auto planned = std::chrono::steady_clock::now();
  const bool is_prepared = ahead && ahead->is_prepared;
  const absl::StatusOr<Scheduler::Step> step = Plan();
  stats.plan_seconds += Seconds(planned);
  if (!step.ok()) {
    End(owners.at(scheduler->WhoIsStuck()).active->id, FinishReason::kFailed, step.status());
    return report(0);
  }
  TellStarts(*step);
  const absl::StatusOr<std::unique_ptr<StepLogits>> logits = RunStep(*step, is_prepared);
  if (!logits.ok()) {
    FailStep(*step, logits.status());
    return report(0);
  }
  const auto sampled = std::chrono::steady_clock::now();
  uncommitted = *step;
  if (!ahead) CommitLast();
  TakeCancelled();
  TakeLogits(*step, **logits);
  if (ahead && (!scheduler->Holds(ahead->step) || scheduler->HasDrafts(ahead->step))) DropAhead();
  if (!ahead) TellAll();
  stats.sample_seconds += Seconds(sampled);
  return report(static_cast<int64_t>(step->metadata->positions.size()));
}

}  // namespace pagefuse
