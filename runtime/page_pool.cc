// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/page_pool.h"

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

PagePool::PagePool(const Options& options) : num_pages_(options.num_pages) {
  PF_CHECK(num_pages_ >= 0 && num_pages_ <= kMaxPages);
}

absl::StatusOr<int32_t> PagePool::Allocate() {
  if (num_free() == 0) return absl::ResourceExhaustedError("no cache page is free");
  if (free_.empty()) {
    pages_.push_back({.references = 1});
    return static_cast<int32_t>(pages_.size() - 1);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[page].references = 1;
  return page;
}

void PagePool::AddReference(int32_t page) {
  PF_CHECK(references(page) > 0 || kept(page));
  if (++pages_[page].references == 1) --num_kept_;
}

void PagePool::Release(int32_t page) {
  PF_CHECK(references(page) > 0);
  if (--pages_[page].references > 0) return;
  if (kept(page)) {
    ++num_kept_;
  } else {
    free_.push_back(page);
  }
}

void PagePool::Keep(int32_t page) {
  PF_CHECK(references(page) > 0 || kept(page));
  ++pages_[page].kept;
}

void PagePool::Drop(int32_t page) {
  PF_CHECK(kept(page));
  if (--pages_[page].kept > 0 || references(page) > 0) return;
  --num_kept_;
  free_.push_back(page);
}

absl::Status PagePool::CheckAccounts() const {
  std::vector<bool> is_free(pages_.size());
  for (const int32_t page : free_) {
    if (is_free[page]) return absl::InternalError(absl::StrCat("page ", page, " is free twice"));
    is_free[page] = true;
  }
  int64_t only_kept = 0;
  for (size_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    const bool unused = page.references == 0 && page.kept == 0;
    if (page.references < 0 || page.kept < 0 || unused != is_free[i]) {
      return absl::InternalError(absl::StrCat("page ", i, ": ", page.references, " holders, kept ",
                                              page.kept, " times, ", is_free[i] ? "" : "not ",
                                              "among the free ones"));
    }
    only_kept += page.references == 0 && page.kept > 0 ? 1 : 0;
  }
  if (only_kept == num_kept_) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(only_kept, " pages are only kept, ", num_kept_, " counted"));
}

}  // namespace pagefuse
