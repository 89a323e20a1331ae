// SPDX-License-Identifier: Apache-2.0
// Reads keys and values as rows of a cache: where the elements that an attention reads are stored,
// and in what format.
#pragma once

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/passes/analysis/attention/attention_match.h"
#include "pagefuse/passes/analysis/indexing/layout.h"

namespace pagefuse {

// One side, keys or values.
struct ReadRows {
  Element codes;                       // as they lie in the cache
  bool e4m3 = false;                   // codes are bytes that stand for them
  std::optional<Element> scale;        // a tensor's, or one for each row and head
  std::optional<Element> query_scale;  // a tensor's, of queries that are codes too
  double number = 1;                   // a factor that is no element
  IndexSymbolPtr along = nullptr;      // of bytes that hold two codes; null: the row's elements

  bool quantised() const;
  DataType element() const { return e4m3 ? DataType::kFloat8E4M3FN : codes.value->dtype(); }
  bool per_token() const { return scale && !scale->at.empty() && !IsSingle(*scale); }
  static bool IsSingle(const Element& element);
};
// `type`: of queries, which the op rounds rows to that it decodes.
absl::StatusOr<ReadRows> RowsOf(IndexingAnalysis& reader, const Factors& factors,
                                const IndexSymbolPtr& along, DataType type);

// How the axes of an attention map to a paged cache.
struct PagedAxes {
  // The entry of a block table, or of a table of slots: pool[block, row, ..]. Null: the cache is
  // contiguous, one block for a sequence and KV head.
  IndexSymbolPtr block;
  AxisSymbols row;       // of a block; none where it holds one
  IndexExpr owner;       // the sequence, as the table is read
  AxisSymbols sequence;  // axes that make it up
  AxisSymbols heads;     // of keys and values
  AxisSymbols groups;    // query heads of one KV head
  // Heads that are the last digits of `sequence`: a block of each has its own number.
  AxisSymbols sequence_heads;
  IndexSymbolPtr query;  // rows of queries of a sequence; null: one
  bool ragged = false;   // the sequence is computed from its first token, `sequence` is the token
};
absl::StatusOr<PagedAxes> PagedAxesOf(const AttentionMatch& match, const ReadRows& key);

// The cache format of the two sides together.
absl::StatusOr<CacheFormat> FormatOf(const ReadRows& key, const ReadRows& value);

// Output axes that are read in two digits, as query heads that share KV heads are.
AxisSplits SplitsOf(const AttentionMatch& match);

}  // namespace pagefuse
