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
// So many groups are work for many threads; of fewer the segments are shared.
constexpr int64_t kManyGroups = 64;
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
  bool lone_tokens = true;  // as in SparseMlaTask

  int64_t segments() const {
    return std::max<int64_t>(1, (num_rows + kSegmentRows - 1) / kSegmentRows);
  }
};

struct Segment {
  int64_t group, index;
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
    ShareSegments();
    backend_ = UsesTiles() ? Backend{SparseMlaTilesScratch, RunSparseMlaTiles}
                           : Backend{SparseMlaF32Scratch, RunSparseMlaF32};
  }

  void Run(Scratch& scratch) {
    thread_bytes_ = backend_.scratch(p_, most_rows_);
    // Of a group's rows: what is joined, and what a segment leaves. Of shared segments: a row.
    const int64_t rows = segments_.empty() ? 2 * most_rows_ : 1;
    worker_bytes_ = thread_bytes_ + RoundUp(rows * row_floats() * 4);
    memory_ = static_cast<std::byte*>(scratch.Get(worker_bytes_ * MaxWorkers(), 0));
    partials_ = static_cast<float*>(scratch.Get(partial_floats_ * 4 + 64, 1));
    if (segments_.empty()) {
      RunGroups();
    } else {
      RunSegments();
    }
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
                           .num_rows = p_.VisibleRows(b, i + tokens - 1),
                           .lone_tokens = p_.num_queries(b) == 1 || step == 1});
      }
    }
  }

  // Makes tasks of the segments, if that makes more of them and there is memory for what they leave.
  void ShareSegments() {
    int64_t floats = 0;
    bool several = false;
    for (const Group& group : groups_) {
      most_rows_ = std::max(most_rows_, rows_of(group));
      if (group.segments() == 1) continue;
      several = true;
      floats += group.segments() * rows_of(group) * row_floats();
    }
    const bool few = static_cast<int64_t>(groups_.size()) < kManyGroups;
    if (!several || !few || floats * 4 > kMaxPartialBytes) return;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int64_t count = groups_[g].segments();
      for (int64_t s = 0; s < count; ++s) {
        segments_.push_back({static_cast<int64_t>(g), s, partial_floats_});
        if (count > 1) partial_floats_ += rows_of(groups_[g]) * row_floats();
      }
    }
  }

  std::byte* memory_of(int worker) const { return memory_ + worker_bytes_ * worker; }
  float* floats_of(int worker) const {
    return reinterpret_cast<float*>(memory_of(worker) + thread_bytes_);
  }

  void RunSegments() {
    const auto count = static_cast<int64_t>(segments_.size());
    PerWorker<std::vector<RowAddress>> rows;
    // The longest lists last in a sequence: they go first.
    ParallelTasks(count, [&](int64_t i, int worker) {
      const Segment& segment = segments_[count - 1 - i];
      const Group& group = groups_[segment.group];
      float* partials = group.segments() > 1 ? partials_ + segment.partials : nullptr;
      RunSegment(group, segment.index, {partials, memory_of(worker), rows[worker]});
    });
    const int64_t join_bytes = 4 * most_rows_ * row_floats();
    ParallelFor(count, join_bytes, [&](int64_t i, int64_t end, int worker) {
      for (; i < end; ++i) {
        const Group& group = groups_[segments_[i].group];
        if (segments_[i].index > 0 || group.segments() == 1) continue;
        JoinSegments(group, partials_ + segments_[i].partials, floats_of(worker));
      }
    });
  }

  void RunGroups() {
    const auto count = static_cast<int64_t>(groups_.size());
    PerWorker<std::vector<RowAddress>> rows;
    ParallelTasks(count, [&](int64_t i, int worker) {
      const Group& group = groups_[count - 1 - i];
      RunGroup(group, {floats_of(worker), memory_of(worker), rows[worker]});
    });
  }

  // Where a segment goes, or null for the output, and what it needs.
  struct Place {
    float* partials;
    std::byte* scratch;
    std::vector<RowAddress>& rows;
  };

  // Its segments one after the other, joined as JoinSegments does.
  void RunGroup(const Group& group, const Place& at) const {
    if (group.segments() == 1) return RunSegment(group, 0, {nullptr, at.scratch, at.rows});
    float* more = at.partials + rows_of(group) * row_floats();
    RunSegment(group, 0, at);
    for (int64_t s = 1; s < group.segments(); ++s) {
      RunSegment(group, s, {more, at.scratch, at.rows});
      for (int64_t r = 0; r < rows_of(group); ++r) {
        float* to = at.partials + r * row_floats();
        PartialRow row{to[0], to[1], to + 2};
        AddPartialRow(more + r * row_floats(), p_.value_size, row);
        to[0] = row.max;
        to[1] = row.sum;
      }
    }
    for (int64_t r = 0; r < rows_of(group); ++r) {
      float* row = at.partials + r * row_floats();
      Finish(group, r, {row[0], row[1], row + 2});
    }
  }

  void RunSegment(const Group& group, int64_t index, const Place& at) const {
    const int64_t begin = index * kSegmentRows;
    const int64_t end = std::min(begin + kSegmentRows, group.num_rows);
    at.rows.clear();
    if (p_.dense) {
      p_.AppendPositions(group.sequence, begin, end, at.rows);
    } else {
      p_.AppendListed(group.first_token, begin, end, at.rows);
    }
    std::vector<int64_t> visible(group.num_tokens, end - begin);
    for (int64_t i = 0; p_.dense && i < group.num_tokens; ++i) {
      const int64_t seen = p_.VisibleRows(group.sequence, group.first_query + i);
      visible[i] = std::clamp(seen, begin, end) - begin;
    }
    RunTask({&p_, group.first_token, group.num_tokens, at.rows, visible.data(), at.partials,
             at.scratch, group.lone_tokens});
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

  // Joins what the segments of a group left, in their order.
  void JoinSegments(const Group& group, const float* partials, float* values) const {
    const int64_t stride = rows_of(group) * row_floats();
    for (int64_t r = 0; r < rows_of(group); ++r) {
      const float* first = partials + r * row_floats();
      std::copy_n(first + 2, p_.value_size, values);
      PartialRow row{first[0], first[1], values};
      for (int64_t s = 1; s < group.segments(); ++s) {
        AddPartialRow(first + s * stride, p_.value_size, row);
      }
      Finish(group, r, row);
    }
  }

  void Finish(const Group& group, int64_t r, const PartialRow& row) const {
    FinishRow(p_, group.first_token + r / p_.num_heads, r % p_.num_heads, row);
  }

  const SparseMlaProblem& p_;
  Backend backend_;
  std::vector<Group> groups_;
  std::vector<Segment> segments_;  // where they are shared, else none
  int64_t most_rows_ = 0;
  int64_t partial_floats_ = 0;
  float* partials_ = nullptr;
  std::byte* memory_ = nullptr;  // of each worker: its task's, then floats
  int64_t thread_bytes_ = 0, worker_bytes_ = 0;
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
