// SPDX-License-Identifier: Apache-2.0
// The parts of an engine, private to engine*.cc.
#pragma once

#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/scheduler.h"

namespace pagefuse {

struct Engine::Impl {
  // A request that is not done.
  struct Active {
    RequestId id = 0;
    Request request;
    Sink sink;
    bool shares = true;
    bool started = false;           // its sink knows
    bool rereads = false;           // of the engine's own, for nobody
    std::vector<Drafts> drafts;     // of the samples
    std::vector<Progress> samples;  // never resized: the scheduler looks at their tokens
    std::vector<bool> ended;        // by sample: the sink knows
    struct NewToken {
      size_t sample, index;  // which token of its completion
    };
    std::vector<NewToken> untold;  // that the sink does not know
    std::vector<size_t>
        numbers;       // the scheduler's, of the samples that run: the first alone, then all
    int64_t left = 0;  // samples that are not done
  };
  // Of one sample, by the scheduler's number.
  struct Owner {
    Active* active;
    size_t sample;
  };

  EngineOptions options;
  std::unique_ptr<PagedModel> model;
  std::unique_ptr<Scheduler> scheduler;
  EngineStats stats;
  int64_t max_sequences = 1;  // of a step

  std::mutex mutex;  // of what other threads bring
  std::vector<std::unique_ptr<Active>> submitted;
  std::vector<RequestId> cancelled;
  RequestId next_id = 0;

  std::map<RequestId, std::unique_ptr<Active>> active;
  absl::flat_hash_map<size_t, Owner> owners;
  absl::Status stopped;  // by on_step

  // Answers to be read while nothing else is there to do, newest last.
  struct Answer {
    std::vector<int64_t> tokens;
    std::string salt;
  };
  std::deque<Answer> answers;
  int64_t step_shared = 0;            // EngineStep::shared_tokens of the step that is planned
  double read_tokens_per_second = 0;  // of the last steps with pieces of prompts; 0: not known

  // Why a request is refused before any step.
  absl::Status Check(const Request& request) const;
  absl::Status MakeCache();
  absl::Status MakeCacheOf(int64_t bytes);
  absl::StatusOr<RequestId> Submit(Request request, Sink sink, bool shares);
  absl::StatusOr<std::vector<Completion>> Run(const std::vector<Request>& requests,
                                              const OnToken& on_token, bool shares);

  void TakeSubmitted();
  void TakeCancelled();
  void Add(std::unique_ptr<Active> item);
  void EndRereading();
  bool Reread();
  // A step that was planned while the one before it ran.
  struct Ahead {
    Scheduler::Step step;
    bool is_prepared;  // PagedModel::RunPrepared may run it
  };
  // While there is one, sinks are told of tokens when it is asked of the device.
  std::optional<Ahead> ahead;
  std::optional<Scheduler::Step> uncommitted;  // that has run: where there is one ahead
  std::vector<RequestId> untold;  // which requests have new tokens of which sinks do not know

  absl::StatusOr<Scheduler::Step> Plan();
  void PlanAhead(const Scheduler::Step& step);
  void DropAhead();
  void CommitLast();
  void TellStarts(const Scheduler::Step& step);
  StepReport Step();
  absl::StatusOr<std::unique_ptr<StepLogits>> RunStep(const Scheduler::Step& step,
                                                      bool is_prepared);
  // Ends the requests of a step that failed; where the error is one token's, that alone, and the step is
  // planned anew without it.
  void FailStep(const Scheduler::Step& step, const absl::Status& error);
  // A token of a row that waits for no other one.
  struct Draw {
    Active* item;
    size_t sample;
    int64_t row;
    std::optional<absl::StatusOr<SampledToken>> token = std::nullopt;
  };
  // All that the step's logits give: rows in the order of its work.
  void TakeLogits(const Scheduler::Step& step, StepLogits& logits);
  // True if samples branch here.
  bool AddDraws(const Scheduler::Work& work, int64_t row, std::vector<Draw>& draws);
  // Asks for the tokens of a step that is being computed, but of what branches behind it.
  void DrawAhead(const Scheduler::Step& step, StepLogits& logits);
  void DrawAtOnce(StepLogits& logits, const std::vector<Draw>& draws);
  void SampleAll(StepLogits& logits, std::vector<Draw>& draws);
  // The next draws, which are of one request.
  size_t TakeDraws(std::vector<Draw>& draws, size_t first, size_t end, StepLogits& logits);
  // From row `first` on: that behind the newest token of a request, and behind each draft.
  void TakeDrafts(const Scheduler::Work& work, StepLogits& logits, int64_t first);
  std::vector<size_t> ForkSamples(Active& item);
  // Adds a token; ends a completion that goes on with a token that the paged graph does not run.
  void TakeToken(Draw draw, StepLogits& logits);
  // Tells the sink of new tokens, of which each may be the last one.
  void Tell(Active& item);
  void TellAll();
  // Ends what is not done of a request, samples that are done, or one.
  void End(RequestId id, FinishReason finish, const absl::Status& error);
  void EndDone(Active& item);
  void EndSample(Active& item, size_t sample);
  void RemoveIfDone(const Active& item);
};

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

inline void Fail(Progress& progress, absl::Status error) {
  progress.completion.error = std::move(error);
  progress.completion.finish = FinishReason::kFailed;
  progress.done = true;
}

}  // namespace pagefuse
