// SPDX-License-Identifier: Apache-2.0
// Limits how much memory the buffers of one user, such as a session, may take together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace pagefuse {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  // ResourceExhausted, and nothing is taken, if that would be over the limit.
  absl::Status Take(int64_t bytes);
  void Return(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_ = 0;
};

// As long as it lives, what this thread allocates (Buffer::Allocate) counts against the budget, and
// does so until it is freed, whenever and wherever that is. Of scopes in scopes the innermost
// counts.
class MemoryBudgetScope {
 public:
  explicit MemoryBudgetScope(std::shared_ptr<MemoryBudget> budget);
  ~MemoryBudgetScope();
  MemoryBudgetScope(const MemoryBudgetScope&) = delete;
  MemoryBudgetScope& operator=(const MemoryBudgetScope&) = delete;

 private:
  std::shared_ptr<MemoryBudget> outer_;
};

// A part of a budget, given back when it goes.
class MemoryShare {
 public:
  // Of this thread's budget; of none where no scope is open. ResourceExhausted as Take.
  absl::Status Take(int64_t bytes);
  MemoryShare() = default;
  ~MemoryShare();
  MemoryShare(MemoryShare&& other) noexcept;
  MemoryShare& operator=(MemoryShare&&) = delete;

 private:
  std::shared_ptr<MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace pagefuse
