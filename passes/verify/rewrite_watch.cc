// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/verify/rewrite_watch.h"

#include <memory>
#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/tensor/memory_budget.h"

namespace pagefuse {

RewriteWatch::RewriteWatch(const Model& model, WatchOptions options)
    : options_(std::move(options)), memory_bytes_(DefaultMemoryBytes()), snapshot_(model) {
  if (options_.verify) Start(model);
}

// Fills the banks; what stood in the way, or nothing.
std::string RewriteWatch::StartOn(const Model& model, int attempt) {
  banks_.clear();
  std::vector<std::map<std::string, Tensor>> all = options_.feeds;
  for (int sample = 0; options_.feeds.empty() && sample < options_.samples; ++sample) {
    auto feeds = RandomFeeds(model, attempt, sample);
    if (!feeds.ok()) return std::string(StdView(feeds.status().message()));
    all.push_back(*std::move(feeds));
  }
  for (const auto& feeds : all) {
    auto bank = ValueBank::Run(model, feeds);
    if (!bank.ok()) {
      banks_.clear();
      return std::string(StdView(bank.status().message()));
    }
    banks_.push_back(*std::move(bank));
  }
  return "";
}

void RewriteWatch::Start(const Model& model) {
  const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(memory_bytes_));
  interface_ = InterfaceOf(*model.graph);
  tolerance_ = ModelTolerance(model);
  for (int attempt = 0; attempt < kFeedAttempts; ++attempt) {
    why_no_bank_ = StartOn(model, attempt);
    if (!banks_.empty()) return;
  }
}

void RewriteWatch::Compare(const Model& model, const GraphChange& change, Rewrite& rewrite) {
  Interface now = InterfaceOf(*model.graph);
  if (!SameInterface(interface_, now)) {
    rewrite.numbers = Rewrite::Numbers::kNotCompared;
    rewrite.detail = kInterfaceChanged;
    options_.feeds.clear();  // they are for other inputs
    return Start(model);
  }
  if (banks_.empty()) {
    rewrite.numbers = Rewrite::Numbers::kNotCompared;
    rewrite.detail = why_no_bank_;
    return;
  }
  const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(memory_bytes_));
  rewrite.numbers = Rewrite::Numbers::kEqual;
  for (ValueBank& bank : banks_) {
    const auto difference = bank.Check(model, change, tolerance_);
    if (difference.ok() && difference->at.empty()) continue;
    if (rewrite.numbers == Rewrite::Numbers::kDiffer) continue;
    if (!difference.ok()) return DoesNotRun(model, StdView(difference.status().message()), rewrite);
    rewrite.numbers = Rewrite::Numbers::kDiffer;
    rewrite.detail = difference->detail;
    if (difference->at != rewrite.at) {
      rewrite.detail = StrCat("\"", difference->at, "\": ", rewrite.detail);
    }
  }
}

// An op may ask more of values (slots in range, a positive scale) than what it took the place of:
// made-up ones need not be so.
void RewriteWatch::DoesNotRun(const Model& model, std::string_view why, Rewrite& rewrite) {
  const bool made_up = options_.feeds.empty();
  rewrite.numbers = made_up ? Rewrite::Numbers::kNotCompared : Rewrite::Numbers::kDiffer;
  rewrite.detail = StrCat(made_up ? "on made-up inputs " : "", why);
  Start(model);
}

Rewrite RewriteWatch::After(const Model& model, std::string_view pass, std::string_view rule) {
  GraphChange change = snapshot_.Update(model);
  Rewrite rewrite{.number = ++number_,
                  .pass = std::string(pass),
                  .rule = std::string(rule),
                  .at = std::move(change.at),
                  .taken = std::move(change.taken),
                  .made = std::move(change.made)};
  if (options_.verify) Compare(model, change, rewrite);
  return rewrite;
}

}  // namespace pagefuse
