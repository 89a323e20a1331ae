// SPDX-License-Identifier: Apache-2.0
// The vector kernels' plan: tokens into groups, lists into segments, tasks onto threads, partial
// results into rows.
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse {
namespace {

// Rows of a segment: enough to pay for joining it.
constexpr int64_t kSegmentRows = 512;
// Segments of all groups, where a call has few groups: work for many threads.
constexpr int64_t kMaxSegments = 64;
constexpr int64_t kMaxPartialBytes = int64_t{32} << 20;
// Query rows of a group of several tokens: with more of them their results would not stay in a
// second-level cache.
constexpr int64_t kGroupRows = 128;

// Divides by the sum of weights, lets the sink take its part, stores a row of the output and its
// lse.
void FinishRow(const SparseMlaProblem& p, int64_t token, int64_t head, PartialRow row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float factor = 0;
  float lse = kInfinity;
  const bool empty = row.max == -kInfinity && row.sum == 0;
  if (!empty) {
    lse = row.max + std::log(row.sum);
    factor = 1 / row.sum;
    if (p.sink != nullptr) factor /= 1 + std::exp(p.sink[head] - lse);
  }
  const int64_t index = token * p.num_heads + head;
  if (p.lse != nullptr) p.lse[index] = lse;
  StoreSparseMlaRow(p, {index, row.values, factor});
}

struct Group {
  int64_t first_token, num_tokens;
  int64_t sequence = 0;     // dense
  int64_t first_query = 0;  // dense: number of first_token in its sequence
  int64_t num_rows = 0;     // of the cache, that the last token sees
  int64_t segments = 1;
};

struct Segment {
  int64_t group, begin, end;
  int64_t partials = 0;  // floats before it; used with several segments
};

struct Backend {
  int64_t (*scratch)(const SparseMlaProblem&, int64_t);
  bool (*run)(const SparseMlaTask&);
};

class SparseMlaPlan {
 public:
  explicit SparseMlaPlan(const SparseMlaProblem& p) : p_(p) {
    if (p.dense) {
      MakeDenseGroups();
    } else {
      MakeListedGroups();
    }
    CutGroups();
    backend_ = UsesTiles() ? Backend{SparseMlaTilesScratch, RunSparseMlaTiles}
                           : Backend{SparseMlaF32Scratch, RunSparseMlaF32};
  }

  void Run(Scratch& scratch) {
    const int64_t thread_bytes = backend_.scratch(p_, most_rows_);
    const int64_t worker_bytes = thread_bytes + RoundUp(row_floats() * 4);
    auto* base = static_cast<std::byte*>(scratch.Get(worker_bytes * MaxWorkers(), 0));
    partials_ = static_cast<float*>(scratch.Get(partial_floats_ * 4 + 64, 1));
    const auto num_segments = static_cast<int64_t>(segments_.size());
    PerWorker<std::vector<RowAddress>> rows;
    // The longest lists last in a sequence: they go first.
    ParallelTasks(num_segments, [&](int64_t i, int worker) {
      RunSegment(segments_[num_segments - 1 - i], base + worker_bytes * worker, rows[worker]);
    });
    const int64_t join_bytes = 4 * most_rows_ * row_floats();
    ParallelFor(num_segments, join_bytes, [&](int64_t i, int64_t end, int worker) {
      auto* own = reinterpret_cast<float*>(base + worker_bytes * worker + thread_bytes);
      for (; i < end; ++i) JoinGroup(segments_[i], own);
    });
  }

 private:
  bool UsesTiles() const { return SparseMlaTilesSupports(p_) && HasBf16Tiles(); }

  static int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t row_floats() const { return PartialRowFloats(p_.value_size); }
  int64_t rows_of(const Group& group) const { return group.num_tokens * p_.num_heads; }

  void MakeListedGroups() {
    for (int64_t t = 0; t < p_.num_tokens; ++t) {
      Group group{.first_token = t, .num_tokens = 1};
      for (const SparseMlaProblem::List& list : p_.lists) {
        const int32_t* indices = list.indices + t * list.columns;
        group.num_rows +=
            std::count_if(indices, indices + list.length(t), [](int32_t i) { return i >= 0; });
      }
      groups_.push_back(group);
    }
  }

  void MakeDenseGroups() {
    const int64_t step = std::max<int64_t>(1, kGroupRows / p_.num_heads);
    for (int64_t b = 0; b < p_.num_sequences; ++b) {
      for (int64_t i = 0; i < p_.num_queries(b); i += step) {
        const int64_t tokens = std::min(step, p_.num_queries(b) - i);
        groups_.push_back({.first_token = p_.query_start_loc[b] + i,
                           .num_tokens = tokens,
                           .sequence = b,
                           .first_query = i,
                           .num_rows = p_.VisibleRows(b, i + tokens - 1)});
      }
    }
  }

  void CutGroups() {
    for (const Group& group : groups_) most_rows_ = std::max(most_rows_, rows_of(group));
    const auto count = std::max<int64_t>(1, static_cast<int64_t>(groups_.size()));
    const int64_t group_bytes = std::max<int64_t>(1, most_rows_ * row_floats() * 4);
    const int64_t most =
        std::max<int64_t>(1, std::min(kMaxSegments, kMaxPartialBytes / group_bytes) / count);
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      group.segments =
          std::clamp<int64_t>((group.num_rows + kSegmentRows - 1) / kSegmentRows, 1, most);
      for (int64_t s = 0; s < group.segments; ++s) {
        segments_.push_back({.group = static_cast<int64_t>(g),
                             .begin = group.num_rows * s / group.segments,
                             .end = group.num_rows * (s + 1) / group.segments,
                             .partials = partial_floats_});
        if (group.segments > 1) partial_floats_ += rows_of(group) * row_floats();
      }
    }
  }

  void RunSegment(const Segment& segment, std::byte* scratch, std::vector<RowAddress>& rows) const {
    const Group& group = groups_[segment.group];
    rows.clear();
    if (p_.dense) {
      p_.AppendPositions(group.sequence, segment.begin, segment.end, rows);
    } else {
      p_.AppendListed(group.first_token, segment.begin, segment.end, rows);
    }
    std::vector<int64_t> visible(group.num_tokens, segment.end - segment.begin);
    for (int64_t i = 0; p_.dense && i < group.num_tokens; ++i) {
      const int64_t seen = p_.VisibleRows(group.sequence, group.first_query + i);
      visible[i] = std::clamp(seen, segment.begin, segment.end) - segment.begin;
    }
    float* partials = group.segments > 1 ? partials_ + segment.partials : nullptr;
    RunTask({&p_, group.first_token, group.num_tokens, rows, visible.data(), partials, scratch});
  }

  // Token by token where a row that some do not see would spoil them.
  void RunTask(const SparseMlaTask& task) const {
    if (backend_.run(task)) return;
    for (int64_t i = 0; i < task.num_tokens; ++i) {
      SparseMlaTask one = task;
      one.first_token += i;
      one.num_tokens = 1;
      one.visible += i;
      one.rows = task.rows.first(static_cast<size_t>(task.visible[i]));
      if (one.partials != nullptr) one.partials += i * p_.num_heads * row_floats();
      PF_CHECK(backend_.run(one));
    }
  }

  // Joins the segments of a group, at the first of them.
  void JoinGroup(const Segment& segment, float* values) const {
    const Group& group = groups_[segment.group];
    if (group.segments == 1 || segment.begin != 0) return;
    const int64_t stride = rows_of(group) * row_floats();
    for (int64_t r = 0; r < rows_of(group); ++r) {
      const PartialRows rows = {.first = partials_ + segment.partials + r * row_floats(),
                                .count = group.segments,
                                .stride = stride,
                                .size = p_.value_size};
      FinishRow(p_, group.first_token + r / p_.num_heads, r % p_.num_heads,
                JoinPartialRows(rows, values));
    }
  }

  const SparseMlaProblem& p_;
  Backend backend_;
  std::vector<Group> groups_;
  std::vector<Segment> segments_;
  int64_t most_rows_ = 0;
  int64_t partial_floats_ = 0;
  float* partials_ = nullptr;
};

}  // namespace

void SparseMlaTask::Put(int64_t r, const PartialRow& row) const {
  const int64_t heads = problem->num_heads;
  if (partials == nullptr) return FinishRow(*problem, first_token + r / heads, r % heads, row);
  float* to = partials + r * PartialRowFloats(problem->value_size);
  to[0] = row.max;
  to[1] = row.sum;
  std::copy_n(row.values, problem->value_size, to + 2);
}

void RunSparseMla(const SparseMlaProblem& p, Scratch& scratch) {
  if (p.num_tokens == 0 || p.num_heads == 0) return;
  SparseMlaPlan(p).Run(scratch);
}

}  // namespace pagefuse
