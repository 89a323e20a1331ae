// SPDX-License-Identifier: Apache-2.0
// The parts of an engine, private to engine*.cc.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/scheduler.h"

namespace pagefuse {

struct Engine::Impl {
  EngineOptions options;
  std::unique_ptr<PagedModel> model;
  EngineStats stats;

  // Texts whose cache is kept for Continue: the last prompt, and the last answer behind it.
  struct Kept {
    std::vector<int64_t> tokens;  // those in the cache
    SequenceId sequence;
  };
  std::vector<Kept> kept;
  int64_t max_sequences = 1;  // of a step
  int64_t kept_room = 0;      // tokens that the cache was made for

  // Why a request is refused before any step.
  absl::Status Check(const Request& request) const;
  std::vector<Progress> Begin(const std::vector<Request>& requests) const;
  // For the requests that are not refused.
  absl::Status MakeCache(const std::vector<Request>& requests);
  absl::StatusOr<Tensor> RunStep(const Scheduler::Step& step,
                                 const std::vector<const Progress*>& progress);
  absl::StatusOr<Tensor> RunTokens(const std::vector<int64_t>& input_ids,
                                   const StepMetadata& metadata);
  absl::Status RunAll(const std::vector<Request>& requests, std::vector<Progress>& progress,
                      const OnToken& on_token);

  // AddToken; ends a completion that goes on with a token that the paged graph does not run.
  void Take(const Request& request, std::span<const float> logits, Progress& progress, size_t index,
            const OnToken& on_token);

  absl::Status MakeRoom(const Request& request, int64_t room);
  absl::StatusOr<Kept> GoOnFrom(const std::vector<int64_t>& prompt);
  absl::StatusOr<Tensor> Append(Kept& text, const std::vector<int64_t>& tokens, bool wants_logits);
  absl::Status Answer(const Request& request, Kept& text, Progress& progress,
                      const OnToken& on_token);
  void Drop(const Kept& text) { model->cache().Remove(text.sequence); }
  void DropAll();
};

}  // namespace pagefuse
