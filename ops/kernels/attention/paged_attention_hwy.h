// SPDX-License-Identifier: Apache-2.0
// The vector kernel of PagedAttention: how a call is cut into tasks, and what a task sees.
//
// A sequence with one query token is decoded: its visible keys are cut into segments, each of which
// gives a partial result; the partials are merged by their log-sum-exp. Other sequences are
// computed by query tiles over key tiles. Where a sequence is cut depends on nothing but that
// sequence: segments on the number of its visible keys, key tiles on positions. So the batch around
// it, the number of threads and the order of tasks never change a bit of its result.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/kernels/attention/partial_rows.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {

// Keys in a tile. Prefill tiles start at multiples of it.
inline constexpr int64_t kPaTileKeys = 64;

// Keys `keys` of sequence `b` against its only query token, for KV heads [first_head, last_head).
struct PagedDecodeTask {
  const PagedAttentionProblem* problem;
  int64_t b;
  KeyInterval keys;
  int64_t first_head, last_head;
  const float* query;  // rows of all query heads, as LoadQueryRow gives them
  float* partials;     // row of query head h at h * PagedDecodePartialSize(): max, sum, values
  std::byte* scratch;
};

// Query tokens [first_query, last_query) of sequence `b` for one KV head, all of their keys; writes
// output rows.
struct PagedPrefillTask {
  const PagedAttentionProblem* problem;
  int64_t b;
  int64_t first_query, last_query;
  int64_t kv_head;
  std::byte* scratch;
};

inline int64_t PagedDecodePartialSize(const PagedAttentionProblem& p) {
  return PartialRowFloats(p.head_size);
}

// Bytes of scratch that a task needs, aligned to 64.
int64_t PagedDecodeScratch(const PagedAttentionProblem& p);
int64_t PagedPrefillScratch(const PagedAttentionProblem& p, int64_t num_queries);
void RunPagedDecode(const PagedDecodeTask& task);
// RunPagedDecode where the problem has TurboQuant slots.
void RunTurboQuantDecode(const PagedDecodeTask& task);
void RunPagedPrefill(const PagedPrefillTask& task);

// HadamardTransform, vectorised.
void HadamardTransformHwy(float* x, int64_t n);
// Row `token`, `head` of query as floats; for int4 and TurboQuant caches in the space of their
// keys.
void LoadQueryRow(const PagedAttentionProblem& p, int64_t token, int64_t head, float* q);
// Lets the sink join, divides, scales and stores an output row, and its lse. Spoils row.values.
void FinishRow(const PagedAttentionProblem& p, int64_t token, int64_t head, PartialRow row);
// Factor of the dot products of a row, but for the row's own scale.
float ScoreFactor(const PagedAttentionProblem& p);

// Computes all rows of a problem whose cache elements are used as floats: a plain cache is of the
// compute type, of float8e4m3fn, or one of the two is float. Uses slots 0 to 3 of the scratch
// memory.
void RunPagedAttention(const PagedAttentionProblem& p, Scratch& scratch);

}  // namespace pagefuse
