// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/engine_thread.h"

#include <chrono>
#include <utility>

#include "pagefuse/base/status_macros.h"

namespace pagefuse::serve {
namespace {

using Clock = std::chrono::steady_clock;

double GraphSeconds(const EngineStats& stats) {
  return stats.prefill_seconds + stats.decode_seconds;
}

}  // namespace

EngineThread::EngineThread(Decoder* decoder,
                           std::function<void(const StepTimes&, const EngineState&)> on_step)
    : decoder_(decoder), on_step_(std::move(on_step)) {
  Keep({});
  thread_ = std::thread([this] { Run(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

absl::StatusOr<RequestId> EngineThread::Submit(Request request, Sink sink) {
  const int64_t samples = NumCompletions(request);
  sink.on_done = [this, told = std::move(sink.on_done)](int64_t sample, Completion completion) {
    if (told) told(sample, std::move(completion));
    --pending_;
  };
  pending_ += samples;
  const auto id = decoder_->Submit(std::move(request), std::move(sink));
  if (!id.ok()) {
    pending_ -= samples;
    return id.status();
  }
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
  return id;
}

void EngineThread::Cancel(RequestId id) { decoder_->Cancel(id); }

void EngineThread::ForgetTexts() {
  std::unique_lock lock(mutex_);
  bool done = false;
  calls_.push_back([&] {
    decoder_->ForgetTexts();
    Keep({});
    const std::lock_guard inner(mutex_);
    done = true;
    done_.notify_all();
  });
  woken_ = true;
  wake_.notify_one();
  done_.wait(lock, [&] { return done; });
}

EngineState EngineThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void EngineThread::Keep(const StepReport& report) {
  EngineState state;
  state.stats = decoder_->stats();
  state.running = report.rereads ? 0 : report.running;
  state.waiting = report.waiting;
  if (const Engine* engine = decoder_->engine()) {
    const PagePool& pool = engine->cache().pool();
    state.pages = pool.num_pages();
    state.pages_held = pool.num_held();
    state.pages_kept = pool.num_kept();
  }
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void EngineThread::Run() {
  bool busy = true;  // the last step did something: answers may be left to be read again
  while (true) {
    std::vector<std::function<void()>> calls;
    {
      std::unique_lock lock(mutex_);
      if (!busy && Idles()) wake_.wait(lock, [this] { return woken_ || ends_ || !calls_.empty(); });
      if (ends_) return;
      woken_ = false;
      calls.swap(calls_);
    }
    for (const auto& call : calls) call();
    StepTimes times = {.start = Clock::now()};
    const EngineStats before = decoder_->stats();
    const StepReport report = decoder_->Step();
    times.seconds = std::chrono::duration<double>(Clock::now() - times.start).count();
    Keep(report);
    busy = report.tokens > 0;
    if (!busy || !on_step_) continue;
    const EngineState after = state();
    times.tokens = report.tokens;
    times.rereads = report.rereads;
    times.plan_seconds = after.stats.plan_seconds - before.plan_seconds;
    times.run_seconds = GraphSeconds(after.stats) - GraphSeconds(before);
    times.sample_seconds = after.stats.sample_seconds - before.sample_seconds;
    on_step_(times, after);
  }
}

}  // namespace pagefuse::serve
