// SPDX-License-Identifier: Apache-2.0
// The vector kernels of SparseMlaAttention: how a call is cut into tasks, and what a task sees.
//
// A group is one query token, or in the dense case a few tokens of one sequence: rows of query that
// share a list of cache rows. A task computes a group over a segment of its list: tiles of cache
// rows are gathered and decoded once for all query rows, both products are matrix products. Segments
// end at multiples of a fixed number of rows and are joined in their order by their log-sum-exp, so
// that a query row has the same bits whatever the other rows of the call are, those of its group
// among them, and on any number of threads. Where a call has few groups, their segments are tasks of
// their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pagefuse/ops/kernels/attention/partial_rows.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_problem.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {

// Query tokens [first_token, first_token + num_tokens), all heads, against `rows`. Query row r is
// head r % H of token r / H.
struct SparseMlaTask {
  const SparseMlaProblem* problem;
  int64_t first_token, num_tokens;
  std::span<const RowAddress> rows;
  // By token: how many of `rows`, from the first, it sees. Does not fall; the last is rows.size().
  const int64_t* visible;
  // [num_tokens * H] of PartialRowFloats(value_size): max, sum, values. Null if the rows are all
  // there is: results go to the output at once.
  float* partials;
  std::byte* scratch;
  // Groups of the call's or the sequence's kind have one token each. A group of several that has but
  // one left is no such: which products compute it follows from its kind.
  bool lone_tokens;

  int64_t num_rows() const { return num_tokens * problem->num_heads; }
  // Leaves the result of query row r.
  void Put(int64_t r, const PartialRow& row) const;
};

// Both kinds of kernel put all query rows of a task. False, before the first: among the rows that
// not all of the tokens see, one is not finite, and would spoil the results of those that do not;
// tasks of one token never say so.
//
// Scratch (bytes, aligned to 64) is for at most `num_rows` query rows.
int64_t SparseMlaF32Scratch(const SparseMlaProblem& p, int64_t num_rows);
bool RunSparseMlaF32(const SparseMlaTask& task);

// Stores row `index` of the output, of all T * H: values[0, value_size) * factor in the type of q.
struct SparseMlaOutputRow {
  int64_t index;
  const float* values;
  float factor;
};
void StoreSparseMlaRow(const SparseMlaProblem& p, const SparseMlaOutputRow& row);

// Tiles of bfloat16: for 16-bit queries and rows that are bfloat16 once decoded. Scores are sums of
// exact products in float32; weights are rounded to bfloat16 for the product with values. Needs
// HasBf16Tiles().
bool SparseMlaTilesSupports(const SparseMlaProblem& p);
int64_t SparseMlaTilesScratch(const SparseMlaProblem& p, int64_t num_rows);
bool RunSparseMlaTiles(const SparseMlaTask& task);

// Computes all rows of a checked problem. Uses slots 0 and 1 of the scratch memory.
void RunSparseMla(const SparseMlaProblem& p, Scratch& scratch);

}  // namespace pagefuse
