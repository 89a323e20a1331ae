// SPDX-License-Identifier: Apache-2.0
// The thread that steps the engine while there is work, and sleeps while there is none.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/decoder.h"

namespace pagefuse::serve {

// What the engine was after its last step.
struct EngineState {
  EngineStats stats = {};
  int64_t running = 0, waiting = 0;
  int64_t pages = 0, pages_held = 0, pages_kept = 0;  // kept: known texts, of no request
};

// What a step was, for metrics and traces.
struct StepTimes {
  int64_t tokens = 0;
  std::chrono::steady_clock::time_point start = {};
  double seconds = 0;         // all of it
  double plan_seconds = 0;    // before the graph runs
  double run_seconds = 0;     // of the graph
  double sample_seconds = 0;  // behind it: draws, and what sinks do
  bool rereads = false;
};

// Thread-safe.
class EngineThread {
 public:
  // `decoder` must outlive it, and nobody else calls it meanwhile. `on_step` is called by the thread.
  EngineThread(Decoder* decoder, std::function<void(const StepTimes&, const EngineState&)> on_step);
  // Ends what runs, as cancelled.
  ~EngineThread();

  // As Decoder's. A sink is called by the thread of the engine.
  absl::StatusOr<RequestId> Submit(Request request, Sink sink);
  void Cancel(RequestId id);
  // Decoder::ForgetTexts, between two steps; returns when it is done.
  void ForgetTexts();

  EngineState state() const;

 private:
  void Run();
  bool Idles() const { return pending_.load() == 0; }
  void Keep(const StepReport& report);

  Decoder* decoder_;
  std::function<void(const StepTimes&, const EngineState&)> on_step_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::function<void()>> calls_;  // between two steps
  bool woken_ = false, ends_ = false;
  std::atomic<int64_t> pending_ = 0;  // completions of requests that are not done
  EngineState state_;
  std::thread thread_;
};

}  // namespace pagefuse::serve
