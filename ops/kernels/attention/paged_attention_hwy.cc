// SPDX-License-Identifier: Apache-2.0
// The vector kernel's plan: sequences into tasks, tasks onto threads, partial results into rows.
#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"

#include <algorithm>

#include "pagefuse/base/parallel.h"

namespace pagefuse {
namespace {

// A segment is long enough to pay for its merge, and a sequence has few enough of them to bound the
// memory of partial results.
constexpr int64_t kSegmentKeys = 512;
constexpr int64_t kMaxSegments = 32;
// Floats in the query rows of a prefill task: enough to pay for packing keys and values, few enough
// for a second-level cache.
constexpr int64_t kPrefillFloats = 48 * 1024;
// Queries and partial results of decoding that are held at a time.
constexpr int64_t kBatchBytes = int64_t{16} << 20;

// Number of segments for `keys` visible keys: even, so that two threads share one sequence well.
int64_t NumSegments(int64_t keys) {
  if (keys <= kSegmentKeys / 4) return 1;
  return std::min(kMaxSegments, 2 * ((keys + 2 * kSegmentKeys - 1) / (2 * kSegmentKeys)));
}

struct Segment {
  int64_t b;
  KeyInterval keys;
  int64_t sequence = 0;  // in its batch
};

std::vector<Segment> CutSequence(const PagedAttentionProblem& p, int64_t b) {
  const KeyInterval hull = p.Hull(b);
  std::vector<Segment> segments;
  if (hull.empty()) return segments;
  const int64_t keys = hull.end - hull.begin;
  const int64_t count = NumSegments(keys);
  const int64_t length = ((keys + count - 1) / count + 15) / 16 * 16;
  for (int64_t begin = hull.begin; begin < hull.end; begin += length) {
    segments.push_back({.b = b, .keys = {begin, std::min(hull.end, begin + length)}});
  }
  return segments;
}

// Decodes a run of sequences with one query token each.
class DecodeBatch {
 public:
  DecodeBatch(const PagedAttentionProblem& p, int threads) : p_(p), threads_(threads) {}

  bool empty() const { return sequences_.empty(); }
  // Memory that Run needs.
  int64_t bytes() const { return partial_bytes() + query_bytes(); }
  void Add(int64_t b) {
    std::vector<Segment> cut = CutSequence(p_, b);
    for (Segment& segment : cut) segment.sequence = static_cast<int64_t>(sequences_.size());
    sequences_.push_back({b, segments_.size(), cut.size()});
    segments_.insert(segments_.end(), cut.begin(), cut.end());
  }

  void Run(Scratch& scratch) {
    auto* partials = static_cast<float*>(scratch.Get(partial_bytes(), 1));
    auto* queries = static_cast<float*>(scratch.Get(query_bytes(), 2));
    const int64_t task_bytes = PagedDecodeScratch(p_);
    auto* base = static_cast<std::byte*>(scratch.Get(task_bytes * threads_, 0));
    // Few segments are shared by KV heads; more than that would only read memory in smaller pieces.
    const auto num_segments = static_cast<int64_t>(segments_.size());
    const int64_t parts =
        num_segments == 0 ? 1 : std::clamp<int64_t>(threads_ / num_segments, 1, p_.num_kv_heads);
    const auto num_rows = static_cast<int64_t>(sequences_.size()) * p_.num_heads;
    ParallelFor(num_rows, 8 * p_.head_size, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) LoadQuery(i, queries);
    });
    ParallelFor(num_segments * parts, TaskBytes(parts), [&](int64_t i, int64_t end, int worker) {
      for (; i < end; ++i) {
        const Segment& segment = segments_[i / parts];
        const int64_t part = i % parts;
        RunPagedDecode({.problem = &p_,
                        .b = segment.b,
                        .keys = segment.keys,
                        .first_head = p_.num_kv_heads * part / parts,
                        .last_head = p_.num_kv_heads * (part + 1) / parts,
                        .query = queries + segment.sequence * p_.num_heads * p_.head_size,
                        .partials = partials + i / parts * segment_floats(),
                        .scratch = base + task_bytes * worker});
      }
    });
    ParallelFor(num_rows, 12 * p_.head_size, [&](int64_t i, int64_t end, int worker) {
      for (; i < end; ++i) Merge(i, partials, reinterpret_cast<float*>(base + task_bytes * worker));
    });
    sequences_.clear();
    segments_.clear();
  }

 private:
  struct Sequence {
    int64_t b;
    size_t first_segment, num_segments;
  };

  // What one task costs, as bytes: a multiplication takes the time of moving one.
  int64_t TaskBytes(int64_t parts) const {
    int64_t keys = 0;
    for (const Segment& segment : segments_) keys += segment.keys.end - segment.keys.begin;
    const int64_t key_bytes =
        p_.key_row_bytes() + p_.value_row_bytes() + 2 * p_.group() * p_.head_size;
    const auto tasks = std::max<int64_t>(static_cast<int64_t>(segments_.size()) * parts, 1);
    return keys * p_.num_kv_heads * key_bytes / tasks;
  }
  int64_t segment_floats() const { return p_.num_heads * PagedDecodePartialSize(p_); }
  int64_t partial_bytes() const {
    return static_cast<int64_t>(segments_.size()) * segment_floats() *
           static_cast<int64_t>(sizeof(float));
  }
  int64_t query_bytes() const {
    return static_cast<int64_t>(sequences_.size()) * p_.num_heads * p_.head_size *
           static_cast<int64_t>(sizeof(float));
  }

  // Row i of all sequences' heads.
  void LoadQuery(int64_t i, float* queries) const {
    const int64_t token = p_.query_start_loc[sequences_[i / p_.num_heads].b];
    LoadQueryRow(p_, token, i % p_.num_heads, queries + i * p_.head_size);
  }

  void Merge(int64_t i, const float* partials, float* values) const {
    const Sequence& sequence = sequences_[i / p_.num_heads];
    const int64_t head = i % p_.num_heads;
    const float* first = partials + static_cast<int64_t>(sequence.first_segment) * segment_floats();
    const PartialRows rows = {.first = first + head * PagedDecodePartialSize(p_),
                              .count = static_cast<int64_t>(sequence.num_segments),
                              .stride = segment_floats(),
                              .size = p_.head_size};
    FinishRow(p_, p_.query_start_loc[sequence.b], head, JoinPartialRows(rows, values));
  }

  const PagedAttentionProblem& p_;
  const int threads_;
  std::vector<Sequence> sequences_;
  std::vector<Segment> segments_;
};

// Query tiles of all sequences with more than one query token, the costliest (last) of each
// sequence first.
std::vector<PagedPrefillTask> PrefillTasks(const PagedAttentionProblem& p, int threads) {
  int64_t tokens = 0;
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    if (p.num_queries(b) > 1) tokens += p.num_queries(b);
  }
  // Two tiles a thread at least, where there are tokens for them.
  const int64_t share = tokens * p.num_kv_heads / (2 * threads);
  const int64_t step = std::max<int64_t>(
      1, std::min(kPrefillFloats / std::max<int64_t>(1, p.head_size * p.group()), share));
  std::vector<PagedPrefillTask> tasks;
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    const int64_t queries = p.num_queries(b);
    if (queries < 2) continue;
    for (int64_t last = queries; last > 0; last -= step) {
      for (int64_t kv = 0; kv < p.num_kv_heads; ++kv) {
        tasks.push_back({&p, b, std::max<int64_t>(0, last - step), last, kv, nullptr});
      }
    }
  }
  return tasks;
}

void RunPrefill(const PagedAttentionProblem& p, int threads, Scratch& scratch) {
  std::vector<PagedPrefillTask> tasks = PrefillTasks(p, threads);
  if (tasks.empty()) return;
  int64_t queries = 0;
  for (const PagedPrefillTask& task : tasks) {
    queries = std::max(queries, task.last_query - task.first_query);
  }
  const int64_t task_bytes = PagedPrefillScratch(p, queries);
  auto* base = static_cast<std::byte*>(scratch.Get(task_bytes * threads, 0));
  const auto count = static_cast<int64_t>(tasks.size());
  ParallelTasks(count, [&](int64_t i, int worker) {
    tasks[i].scratch = base + task_bytes * worker;
    RunPagedPrefill(tasks[i]);
  });
}

}  // namespace

void RunPagedAttention(const PagedAttentionProblem& p, Scratch& scratch) {
  if (p.num_heads == 0) return;  // no rows, and no group size either
  const int threads = MaxWorkers();
  RunPrefill(p, threads, scratch);
  DecodeBatch batch(p, threads);
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    if (p.num_queries(b) != 1) continue;
    batch.Add(b);
    if (batch.bytes() >= kBatchBytes) batch.Run(scratch);
  }
  if (!batch.empty()) batch.Run(scratch);
}

}  // namespace pagefuse
