// SPDX-License-Identifier: Apache-2.0
// Answers as they come, in pieces that no protocol is known of: completions.cc, chat.cc, responses.cc and
// messages.cc write them as their clients read them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/answer_text.h"
#include "pagefuse/serve/engine_thread.h"
#include "pagefuse/serve/limits.h"
#include "pagefuse/serve/log.h"
#include "pagefuse/serve/metrics.h"
#include "pagefuse/serve/served_model.h"
#include "pagefuse/serve/trace.h"
#include "pagefuse/serve/workers.h"

namespace pagefuse::serve {

struct GenerationRequest {
  std::string id;        // "chatcmpl-...", in log and reply
  Request request = {};  // prompt, lengths, sampling, stop tokens, constraint
  std::vector<std::string> stops = {};
  AnswerReading reading = {};  // what of the text is reasoning, and what calls
  Grammar::Ptr grammar = {};   // of what is no reasoning; null: any text
};

enum class AnswerFinish { kStop, kLength, kCalls, kCancelled, kFailed };

// How one of the samples ended.
struct AnswerEnd {
  int64_t sample = 0;
  AnswerFinish finish = AnswerFinish::kStop;
  std::string stop = {};         // the stop string that was found
  int64_t stop_token = -1;       // the token of `stop_tokens` that came
  absl::Status error = {};       // kFailed
  int64_t tokens = 0;            // that came, with those that have no text
  int64_t reasoning_tokens = 0;  // of these
  int64_t prompt_tokens = 0, cached_tokens = 0;
};

// Who writes an answer. The calls of one generation come one at a time, by workers.
class GenerationClient {
 public:
  virtual ~GenerationClient() = default;
  virtual void OnDelta(const AnswerDelta& delta) = 0;
  // Each of the samples, once.
  virtual void OnEnd(const AnswerEnd& end) = 0;
};

// One that runs.
class Generation;

struct GenerationsOptions {
  Limits limits = {};
  bool log_prompts = false;  // prompts stand in the log
  Trace* trace = nullptr;    // what is done is written there
};

// Thread-safe.
class Generations {
 public:
  // What is given must outlive it.
  Generations(EngineThread* engine, Workers* workers, const ServedModel* model, Metrics* metrics,
              Log* log, const GenerationsOptions& options);
  ~Generations();

  // The client is told of all that follows. ResourceExhausted where as many wait as may, Unavailable while it
  // drains, InvalidArgument for what the engine refuses.
  absl::StatusOr<std::shared_ptr<Generation>> Start(GenerationRequest request,
                                                    std::shared_ptr<GenerationClient> client);
  // Ends it within a step; its samples end as kCancelled.
  void Cancel(const std::shared_ptr<Generation>& generation);

  // No new ones from now on.
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }
  // Whether all are done by then.
  bool WaitUntil(std::chrono::steady_clock::time_point deadline);
  void CancelAll();
  int64_t active() const;
  int64_t waiting() const { return waiting_; }

 private:
  friend class Generation;
  absl::Status Constrain(GenerationRequest& request) const;
  Sink MakeSink(const std::shared_ptr<Generation>& generation);
  void Forget(const Generation* generation);

  EngineThread* engine_;
  Workers* workers_;
  const ServedModel* model_;
  Metrics* metrics_;
  Log* log_;
  GenerationsOptions options_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> waiting_ = 0;  // that no step has begun
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> active_;
};

}  // namespace pagefuse::serve
