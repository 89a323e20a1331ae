// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/memory_plan.h"

#include <algorithm>
#include <map>

namespace pagefuse {
namespace {

constexpr int64_t kAlignment = 64;

// Bytes that are taken, as intervals that neither overlap nor touch.
class TakenBytes {
 public:
  void Add(int64_t begin, int64_t end) {
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) --next;
    for (; next != ends_.end() && next->first <= end; next = ends_.erase(next)) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
    }
    ends_.emplace_hint(next, begin, end);
  }

  // The lowest offset from `offset` on that has `bytes` free bytes behind it.
  int64_t LowestGap(int64_t offset, int64_t bytes) const {
    auto next = ends_.upper_bound(offset);
    if (next != ends_.begin()) offset = std::max(offset, std::prev(next)->second);
    for (; next != ends_.end() && next->first - offset < bytes; ++next) offset = next->second;
    return offset;
  }

 private:
  std::map<int64_t, int64_t> ends_;  // by begin
};

// Which bytes are taken at which steps: a binary tree over the steps, so that a storage that lives
// long is entered at few places, and storages that fill the arena together are one interval.
class Occupancy {
 public:
  explicit Occupancy(int num_steps) {
    while (num_leaves_ < num_steps) num_leaves_ *= 2;
    ever_.resize(2 * num_leaves_);
    always_.resize(2 * num_leaves_);
  }

  void Take(const Storage& storage, int64_t begin, int64_t end) {
    Visit(storage, kRoot, 0, num_leaves_, [&](int node, bool whole) {
      ever_[node].Add(begin, end);
      if (whole) always_[node].Add(begin, end);
    });
  }

  // The lowest offset that is free for `bytes` as long as the storage lives.
  int64_t LowestGap(const Storage& storage, int64_t bytes) const {
    std::vector<const TakenBytes*> taken;
    Visit(storage, kRoot, 0, num_leaves_,
          [&](int node, bool whole) { taken.push_back(whole ? &ever_[node] : &always_[node]); });
    int64_t offset = 0;
    for (size_t agreed = 0; agreed < taken.size();) {
      for (const TakenBytes* bytes_taken : taken) {
        const int64_t next = bytes_taken->LowestGap(offset, bytes);
        agreed = next == offset ? agreed + 1 : 1;
        offset = next;
      }
    }
    return offset;
  }

 private:
  static constexpr int kRoot = 1;

  // Calls `visit` for the largest nodes all of whose steps are the storage's (whole), and for the
  // nodes above them. A node has steps [begin, end).
  template <typename Visitor>
  static void Visit(const Storage& storage, int node, int begin, int end, const Visitor& visit) {
    if (storage.last_step < begin || end <= storage.first_step) return;
    const bool whole = storage.first_step <= begin && end <= storage.last_step + 1;
    visit(node, whole);
    if (whole) return;
    const int middle = begin + (end - begin) / 2;
    Visit(storage, 2 * node, begin, middle, visit);
    Visit(storage, 2 * node + 1, middle, end, visit);
  }

  int num_leaves_ = 1;
  std::vector<TakenBytes> ever_;    // by node: at one of its steps at least
  std::vector<TakenBytes> always_;  // by node: by storages that live at all of its steps
};

}  // namespace

MemoryPlan PlanMemory(const std::vector<Storage>& storages, bool on_device) {
  MemoryPlan plan;
  plan.offsets.assign(storages.size(), 0);
  plan.sizes.assign(storages.size(), 0);
  std::vector<size_t> order;
  int num_steps = 0;
  for (size_t id = 0; id < storages.size(); ++id) {
    if (storages[id].bytes == 0 || storages[id].on_device != on_device) continue;
    order.push_back(id);
    num_steps = std::max(num_steps, storages[id].last_step + 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return storages[a].bytes > storages[b].bytes; });
  Occupancy occupancy(num_steps);
  for (size_t id : order) {
    const int64_t bytes = (storages[id].bytes + kAlignment - 1) / kAlignment * kAlignment;
    plan.offsets[id] = occupancy.LowestGap(storages[id], bytes);
    plan.sizes[id] = bytes;
    occupancy.Take(storages[id], plan.offsets[id], plan.offsets[id] + bytes);
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[id] + bytes);
  }
  return plan;
}

}  // namespace pagefuse
