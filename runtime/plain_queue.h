// SPDX-License-Identifier: Apache-2.0
// Requests for a graph that runs as it was exported, one after the other, behind the calls of Engine.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {

// As Engine: Submit and Cancel may be called by any thread at any time, Step by one.
class PlainQueue {
 public:
  // `decoder` must outlive it.
  explicit PlainQueue(PlainDecoder* decoder) : decoder_(decoder) {}

  absl::StatusOr<RequestId> Submit(Request request, Sink sink);
  void Cancel(RequestId id);
  // Runs one request to its end, if there is one.
  StepReport Step();

 private:
  struct Item {
    RequestId id;
    Request request;
    Sink sink;
  };
  std::optional<Item> Take();
  bool IsCancelled();
  void Run(const Item& item);
  static void Tell(const Item& item, std::vector<Completion> completions);

  PlainDecoder* decoder_;
  std::mutex mutex_;
  std::deque<Item> waiting_;
  std::optional<RequestId> running_;
  bool cancelled_ = false;  // the one that runs
  RequestId next_id_ = 0;
};

}  // namespace pagefuse
