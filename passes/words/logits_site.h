// The index scores of sparse attention, read by element: rectified products of queries and keys,
// summed over heads.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/words/factors.h"

namespace pagefuse {

// output[m, n] = sum over h of weights * max(0, sum over d of query * key), where `visible` holds;
// scales of keys and queries stand among the factors wherever they stood.
struct LogitsSite {
  Element output;
  AtomPtr m, n, h, d;
  double number = 1;
  Element query, key;
  std::vector<Element> row_factors;  // of a row and head: weights
  std::vector<Element> key_factors;  // of a key: its scale
  Conditions visible;
};

// `fast`, if known: m is read as two digits, of which this is the length of the fast one; they are
// m's place then.
absl::StatusOr<LogitsSite> ReadLogits(ElementReader& reader, Value* output,
                                      const std::vector<IndexForm>& rows);

// As ReadLogits, of scores that nothing hides yet: those of the keys along `key_axis`.
absl::StatusOr<LogitsSite> ReadIndexScores(ElementReader& reader, const Element& scores,
                                           const AtomPtr& key_axis);

}  // namespace pagefuse
