// SPDX-License-Identifier: Apache-2.0
// The index scores of sparse attention, read by element: rectified products of queries and keys,
// summed over heads.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

// output[.., n] = sum over h of weights * max(0, sum over d of query * key), where `visible` holds;
// scales of keys and queries stand among the factors wherever they stood.
struct LogitsMatch {
  Element output;  // at the axes of a row and a key
  IndexSymbolPtr n, h, d;
  double number = 1;
  Element query, key;                // floats, or codes: uint8 stands for float8e4m3fn
  std::vector<Element> row_factors;  // of a row and head: weights
  std::vector<Element> key_factors;  // of a key: its scale
  Conditions visible;

  // Of the weights, if there are any.
  DataType weight_type() const {
    return row_factors.empty() ? DataType::kUndefined : row_factors.front().value->dtype();
  }
};

// `rows`, if known: the digits that the first indices of the output are made of.
absl::StatusOr<LogitsMatch> ReadLogits(IndexingAnalysis& reader, Value* output,
                                       const std::vector<IndexExpr>& rows);

// As ReadLogits, of scores that nothing hides yet: those of the keys along `key_axis`.
absl::StatusOr<LogitsMatch> ReadIndexScores(IndexingAnalysis& reader, const Element& scores,
                                            const IndexSymbolPtr& key_axis);

}  // namespace pagefuse
