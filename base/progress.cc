// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/progress.h"

#include <utility>

namespace pagefuse {
namespace {

thread_local ProgressWatcher* watcher = nullptr;
thread_local ProgressStage* innermost = nullptr;

void Tell() {
  if (watcher != nullptr) watcher->Watch(innermost);
}

}  // namespace

ProgressStage::ProgressStage(std::string what, int64_t total, std::string_view unit)
    : what_(std::move(what)),
      unit_(unit),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      outer_(innermost) {
  innermost = this;
  Tell();
}

ProgressStage::~ProgressStage() {
  innermost = outer_;
  Tell();
}

void ProgressStage::Reach(int64_t done) {
  done_ = done;
  Tell();
}

void WatchProgress(ProgressWatcher* other) { watcher = other; }

}  // namespace pagefuse
