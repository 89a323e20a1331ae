// SPDX-License-Identifier: Apache-2.0
// The pool of cache pages: which pages are free, and who has each of the others.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagefuse {

// Blocks that so many rows fill, the last one perhaps in part.
inline int64_t BlocksOfRows(int64_t rows, int64_t block_size) {
  return rows / block_size + (rows % block_size != 0 ? 1 : 0);
}

// Pages 0 .. num_pages-1 of a cache, all of one size. A page that is not free has a block of one group
// (page_plan.h); its id indexes the first dim of every cache tensor of that group. A page is free, or
// held by sequences, or kept for later ones, or both; of those that are only kept the owner of the pool
// can make free ones. Freed pages are reused last in, first out. Not thread-safe.
class PagePool {
 public:
  struct Options {
    int64_t num_pages = 0;
  };
  explicit PagePool(const Options& options);

  // A page with one holder. ResourceExhausted if none is free: a normal answer, the caller waits.
  absl::StatusOr<int32_t> Allocate();
  // One more holder, of a page that is held or kept.
  void AddReference(int32_t page);
  // One holder less; the last one frees the page if it is not kept.
  void Release(int32_t page);
  // Keeps a page that is held or kept once more, and once less.
  void Keep(int32_t page);
  void Drop(int32_t page);

  // Page ids are int32 in page tables.
  static constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max();

  int64_t num_pages() const { return num_pages_; }
  int64_t num_free() const { return num_pages() - num_used(); }
  // Held, or kept.
  int64_t num_used() const { return static_cast<int64_t>(pages_.size() - free_.size()); }
  int64_t num_held() const { return num_used() - num_kept_; }
  // Kept, and held by nobody.
  int64_t num_kept() const { return num_kept_; }
  // 0 for a page that nobody holds.
  int32_t references(int32_t page) const { return Find(page).references; }
  bool kept(int32_t page) const { return Find(page).kept > 0; }

  // Internal naming the first page whose state is not what the counts say; O(pages).
  absl::Status CheckAccounts() const;

 private:
  struct Page {
    int32_t references = 0;
    int32_t kept = 0;
  };
  Page Find(int32_t page) const {
    return page >= 0 && page < static_cast<int64_t>(pages_.size()) ? pages_[page] : Page{};
  }

  int64_t num_pages_;
  int64_t num_kept_ = 0;
  std::vector<Page> pages_;    // those that were ever used: 0, 1, ...
  std::vector<int32_t> free_;  // those of them that are free
};

}  // namespace pagefuse
