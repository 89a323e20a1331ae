// SPDX-License-Identifier: Apache-2.0
// A line on the terminal that shows what a command is at, and disappears when that is done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "pagefuse/base/progress.h"

namespace pagefuse::tools {

// Shows the stages of the thread that makes it (base/progress.h) on the error stream, if that is a
// terminal: "prefill: 1024 of 9000 tokens, 512 a second, 2 s". Nothing shows before a second has
// passed, and the line is gone before the outermost stage has ended: what is printed must be printed
// between stages.
class ProgressLine : public ProgressWatcher {
 public:
  ProgressLine();
  ~ProgressLine() override;
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Watch(const ProgressStage* innermost) override;

 private:
  using Clock = std::chrono::steady_clock;
  // What is known of the innermost stage.
  struct Shown {
    std::string what;
    std::string_view unit;
    int64_t done = 0, total = 0;
    Clock::time_point start;
  };
  static std::string Text(const Shown& stage, Clock::time_point now);
  // Draws the line again and again, as a stage may take long between two steps.
  void Draw();
  void Clear();

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  bool active_ = false, ends_ = false, drawn_ = false;
  Clock::time_point began_;  // the outermost stage
  Shown stage_;
  std::thread drawer_;  // runs where there is a terminal
};

}  // namespace pagefuse::tools
