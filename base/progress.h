// SPDX-License-Identifier: Apache-2.0
// Lets work that may take long tell how far it is, to whoever watches its thread: a command line that
// shows it, or nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagefuse {

// One of the things that a thread does, from construction to destruction; stages nest. Where nobody
// watches it costs nothing but its text.
class ProgressStage {
 public:
  // `total`: what Reach ends with, 0 if that is not known. `unit`: of what is counted, as "tokens",
  // whose rate is of interest then; empty if it is none.
  explicit ProgressStage(std::string what, int64_t total = 0, std::string_view unit = "");
  ~ProgressStage();
  ProgressStage(const ProgressStage&) = delete;
  ProgressStage& operator=(const ProgressStage&) = delete;

  // So much is done of `total`.
  void Reach(int64_t done);

  const std::string& what() const { return what_; }
  std::string_view unit() const { return unit_; }
  int64_t done() const { return done_; }
  int64_t total() const { return total_; }
  std::chrono::steady_clock::time_point start() const { return start_; }

 private:
  std::string what_;
  std::string_view unit_;
  int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_;
  ProgressStage* outer_;
};

class ProgressWatcher {
 public:
  virtual ~ProgressWatcher() = default;
  // A stage began, ended or went on. `innermost` is the one that runs now, null if none does; it is
  // valid during the call. Must not throw.
  virtual void Watch(const ProgressStage* innermost) = 0;
};

// The watcher of this thread from now on, which must live until another takes its place; null for none.
void WatchProgress(ProgressWatcher* watcher);

}  // namespace pagefuse
