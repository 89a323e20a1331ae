// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/memory_budget.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::shared_ptr<MemoryBudget>& CurrentBudget() {
  thread_local std::shared_ptr<MemoryBudget> budget;
  return budget;
}

}  // namespace

absl::Status MemoryBudget::Take(int64_t bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) {
      return absl::ResourceExhaustedError(StrCat("no memory for ", bytes, " bytes: ", used,
                                                 " are taken, of ", limit_, " that may be"));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return absl::OkStatus();
}

MemoryBudgetScope::MemoryBudgetScope(std::shared_ptr<MemoryBudget> budget)
    : outer_(std::exchange(CurrentBudget(), std::move(budget))) {}

MemoryBudgetScope::~MemoryBudgetScope() { CurrentBudget() = std::move(outer_); }

absl::Status MemoryShare::Take(int64_t bytes) {
  PF_CHECK(budget_ == nullptr);
  const std::shared_ptr<MemoryBudget>& budget = CurrentBudget();
  if (budget == nullptr) return absl::OkStatus();
  PF_RETURN_IF_ERROR(budget->Take(bytes));
  budget_ = budget;
  bytes_ = bytes;
  return absl::OkStatus();
}

MemoryShare::~MemoryShare() {
  if (budget_ != nullptr) budget_->Return(bytes_);
}

MemoryShare::MemoryShare(MemoryShare&& other) noexcept
    : budget_(std::move(other.budget_)), bytes_(other.bytes_) {}

}  // namespace pagefuse
