// SPDX-License-Identifier: Apache-2.0
// A decoder that runs its graph as it was exported, one sequence at a time, which is how a graph
// that cannot be paged generates. It runs over the past of the graph where the graph has one, and
// otherwise from the first token again for every new one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_inputs.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {

// A row of logits behind a prompt, and one behind each token that follows it.
using LogitRows = std::vector<std::vector<float>>;

// Not thread-safe.
class PlainDecoder {
 public:
  // Of the options, those of paging and batching count for nothing. FailedPrecondition naming an
  // input that it cannot feed (FindPlainInputs).
  static absl::StatusOr<std::unique_ptr<PlainDecoder>> Create(Model model,
                                                              const EngineOptions& options);

  // As Engine::Generate, one request after the other.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<Request>& requests,
                                                   const OnToken& on_token = nullptr);

  // The rows of a text that is given, which starts at some position where an input gives positions.
  // Nothing of it counts in stats().
  absl::StatusOr<LogitRows> Logits(const std::vector<int64_t>& prompt,
                                   const std::vector<int64_t>& following,
                                   int64_t first_position = 0);

  // Told the inputs of every run, before it.
  void set_on_run(std::function<void(const std::map<std::string, Tensor>& feeds)> on_run) {
    on_run_ = std::move(on_run);
  }

  // False: every token costs as much as all before it.
  bool keeps_past() const { return !inputs_.pasts.empty(); }
  const PlainInputs& inputs() const { return inputs_; }
  int64_t vocabulary() const { return vocabulary_; }  // 0: not declared
  const Session& session() const { return *session_; }
  // Steps, tokens and seconds; a step that starts again counts the tokens that are new.
  EngineStats stats() const { return stats_; }

 private:
  PlainDecoder() = default;

  absl::Status Begin();
  // Runs `tokens` from `first` on and returns the logits of the last one.
  absl::StatusOr<std::vector<float>> Step(const std::vector<int64_t>& tokens, int64_t first);
  absl::StatusOr<std::map<std::string, Tensor>> Feeds(const std::vector<int64_t>& tokens,
                                                      int64_t first) const;
  absl::Status RunOne(const Request& request, Progress& progress, size_t completion,
                      const OnToken& on_token);

  std::unique_ptr<Session> session_;
  PlainInputs inputs_;
  std::vector<std::string> fetches_;  // the logits, then the presents
  std::vector<Tensor> pasts_;
  int64_t first_position_ = 0;  // of the text that runs
  std::function<absl::Status(const EngineStep&)> on_step_;
  std::function<void(const std::map<std::string, Tensor>& feeds)> on_run_;
  int64_t vocabulary_ = 0;
  EngineStats stats_;
};

}  // namespace pagefuse
