// SPDX-License-Identifier: Apache-2.0
// Traces how the values of an exported decoder depend on the tokens of its batch: what may be
// computed on packed tokens, and which node prevents it.
#pragma once

#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/indexing/index_expr.h"

namespace pagefuse {

// The axes of a value that run over the sequences of the batch and over the new tokens of a
// sequence; -1: the value is the same for all of them. Both the same: one axis runs over all tokens
// of the batch, sequence by sequence. Along the axis of tokens every token has `per_token` places,
// one behind the other (its heads, say).
struct TokenAxes {
  int batch = -1;
  int token = -1;
  int64_t per_token = 1;

  bool none() const { return batch < 0 && token < 0; }
  bool flat() const { return batch >= 0 && batch == token; }
  bool contains(int axis) const { return axis >= 0 && (axis == batch || axis == token); }
  bool operator==(const TokenAxes&) const = default;
};

enum class TokenRole {
  kFixed,     // the same in every run
  kSizes,     // integers that depend on the sizes of batch and sequence only
  kIndex,     // an affine function of the places of its elements: counts, positions, masks of ones
  kGrid,      // of places too, but in no such form: a mask over pairs of tokens
  kRows,      // row (b, s) depends on token (b, s), its position, and what paged attention gives it
  kLastRows,  // row b is row (b, S - 1) of values that were rows
};

struct TokenDependence {
  TokenRole role = TokenRole::kFixed;
  TokenAxes axes = {};  // of kRows
  // Of kIndex: the element at `at`, one axis each, 0 along axes of length 1.
  IndexExpr index = {};
  std::vector<IndexExpr> at = {};
};

// What takes part in a match's attention beside query, key and value.
struct BesideMatch {
  const Value* value = nullptr;
  bool by_token = false;  // rows of tokens on axis 1; otherwise the same in every run
  std::string_view what;  // "sinks", for messages
};

// What the tracing starts from.
struct TokenSources {
  Dim batch;
  Dim sequence;
  Dim past = 0;  // tokens before the new ones: 0 without a cache, unknown if nothing says how many
  std::vector<const Value*> rows;            // inputs [B, S] that hold a number for every token
  const Value* padding = nullptr;            // input [B, T]; nothing is padded: all ones
  absl::flat_hash_set<const Node*> matches;  // Attention nodes that become paged
  absl::flat_hash_map<const Node*, std::vector<BesideMatch>> beside;
};

struct TokenTrace {
  // Every value that an output still depends on once the matches are paged. A match is read by its
  // query, key and value, and by what is beside them.
  absl::flat_hash_map<const Value*, TokenDependence> values;
  // Values of role kIndex that are read as rows of numbers: `step` times the position of the token
  // plus `offset`, along axis `axis`. Positions of the packed step have to take their place.
  struct Place {
    const Value* value = nullptr;
    int axis = -1;
    int64_t step = 1;
    int64_t offset = 0;
  };
  std::vector<Place> places;
  // Slices of a table that is the same in every run, from the first new token to the last: a row
  // for each, `offset` behind that of its position. Rows by position have to take their place.
  struct TableCut {
    Node* slice = nullptr;
    int axis = -1;
    int64_t offset = 0;
  };
  std::vector<TableCut> cuts;
  // Nodes whose output 0 is the rows of last tokens, of rows [B, S, N] that are their input 0.
  std::vector<Node*> selections;
  // Nodes of role kLastRows that only drop or add the axis of the one token.
  std::vector<Node*> last_row_views;
  // Nodes of role kLastRows that work along the last axis of their rows, whichever its number is.
  std::vector<Node*> along_last_axis;
};

// Follows the token axis from the sources to the outputs. FailedPrecondition naming the first node
// that mixes tokens, or that is not known to work on each token alone, and why.
absl::StatusOr<TokenTrace> TraceTokens(const Graph& graph, const TokenSources& sources,
                                       const SymbolicContents& contents);

}  // namespace pagefuse
