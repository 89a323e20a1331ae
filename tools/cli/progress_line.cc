// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress_line.h"

#include <csignal>
#include <iostream>

#include <unistd.h>

#include <sys/ioctl.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr std::string_view kToBegin = "\r\x1b[K";  // and the line is empty
constexpr std::chrono::milliseconds kWait(1000), kRedraw(200);

// A longer line would wrap, and its first part stay.
std::string Fit(std::string text) {
  winsize window = {};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  const size_t width = known ? window.ws_col - 1 : 79;
  if (text.size() <= width) return text;
  size_t end = width;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

ProgressLine::ProgressLine() {
  if (isatty(STDERR_FILENO) != 1) return;
  // Signals are the main thread's: Ctrl-C has to interrupt what reads there.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  drawer_ = std::thread([this] { Draw(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  WatchProgress(this);
}

ProgressLine::~ProgressLine() {
  if (!drawer_.joinable()) return;
  WatchProgress(nullptr);
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    Clear();
  }
  changed_.notify_one();
  drawer_.join();
}

void ProgressLine::Watch(const ProgressStage* innermost) {
  const std::lock_guard lock(mutex_);
  if (innermost == nullptr) {
    active_ = false;
    Clear();
    return;
  }
  stage_ = {innermost->what(), innermost->unit(), innermost->done(), innermost->total(),
            innermost->start()};
  if (active_) return;
  active_ = true;
  began_ = innermost->start();
  changed_.notify_one();
}

std::string ProgressLine::Text(const Shown& stage, Clock::time_point now) {
  const int64_t passed = duration_cast<seconds>(now - stage.start).count();
  std::string text = stage.what;
  if (stage.done > 0 || !stage.unit.empty()) {
    StrAppend(&text, ": ", stage.done);
    if (stage.total > 0) StrAppend(&text, " of ", stage.total);
    if (!stage.unit.empty()) StrAppend(&text, " ", stage.unit);
  }
  const double real = std::chrono::duration<double>(now - stage.start).count();
  if (!stage.unit.empty() && stage.done > 0 && real > 0) {
    StrAppend(&text, ", ", static_cast<int64_t>(static_cast<double>(stage.done) / real),
              " a second");
  }
  if (passed > 0) StrAppend(&text, ", ", passed, " s");
  return text;
}

void ProgressLine::Draw() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (!active_) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (now - began_ >= kWait) {
      std::cerr << kToBegin << Fit(Text(stage_, now)) << std::flush;
      drawn_ = true;
    }
    changed_.wait_for(lock, now - began_ >= kWait ? kRedraw : kWait - (now - began_));
  }
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  std::cerr << kToBegin << std::flush;
  drawn_ = false;
}

}  // namespace pagefuse::tools
