// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/plain_queue.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

absl::StatusOr<RequestId> PlainQueue::Submit(Request request, Sink sink) {
  PF_RETURN_IF_ERROR(CheckRequest(request, decoder_->vocabulary()));
  const std::lock_guard lock(mutex_);
  waiting_.push_back({next_id_, std::move(request), std::move(sink)});
  return next_id_++;
}

void PlainQueue::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (running_ == id) cancelled_ = true;
  const auto it = std::ranges::find(waiting_, id, &Item::id);
  if (it == waiting_.end()) return;
  // It is told of by the thread that steps, as the first of those that wait.
  it->request.refused = absl::CancelledError("cancelled");
}

std::optional<PlainQueue::Item> PlainQueue::Take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  const auto refused = [](const Item& item) { return !item.request.refused.ok(); };
  auto it = std::ranges::find_if(waiting_, refused);
  if (it == waiting_.end()) it = waiting_.begin();
  Item item = std::move(*it);
  waiting_.erase(it);
  running_ = item.id;
  cancelled_ = false;
  return item;
}

bool PlainQueue::IsCancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void PlainQueue::Tell(const Item& item, std::vector<Completion> completions) {
  for (size_t sample = 0; sample < completions.size(); ++sample) {
    if (!item.sink.on_done) return;
    item.sink.on_done(static_cast<int64_t>(sample), std::move(completions[sample]));
  }
}

void PlainQueue::Run(const Item& item) {
  const auto ended = [&](FinishReason finish, const absl::Status& error) {
    std::vector<Completion> completions(NumCompletions(item.request));
    for (Completion& completion : completions) {
      completion.finish = finish;
      completion.error = error;
    }
    return completions;
  };
  if (!item.request.refused.ok()) {
    return Tell(item, ended(FinishReason::kCancelled, absl::OkStatus()));
  }
  if (item.sink.on_start) item.sink.on_start();
  const auto on_token = [&](const NewToken& token) {
    return !IsCancelled() && (!item.sink.on_token || item.sink.on_token(token));
  };
  auto completions = decoder_->Generate({item.request}, on_token);
  if (!completions.ok()) return Tell(item, ended(FinishReason::kFailed, completions.status()));
  for (Completion& completion : *completions) {
    if (completion.finish == FinishReason::kEnded && IsCancelled()) {
      completion.finish = FinishReason::kCancelled;
    }
  }
  Tell(item, *std::move(completions));
}

StepReport PlainQueue::Step() {
  const auto tokens = [this] {
    const EngineStats stats = decoder_->stats();
    return stats.prefill_tokens + stats.decode_tokens;
  };
  const int64_t before = tokens();
  if (const std::optional<Item> item = Take()) Run(*item);
  const std::lock_guard lock(mutex_);
  running_.reset();
  return {.tokens = tokens() - before, .waiting = static_cast<int64_t>(waiting_.size())};
}

}  // namespace pagefuse
