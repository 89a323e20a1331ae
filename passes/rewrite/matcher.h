// SPDX-License-Identifier: Apache-2.0
// Finds a pattern in a graph. What may differ between the two is said here, once, so that rules
// need not repeat it:
//
// - operands of commutative ops in any order, and Less/Greater with exchanged operands;
// - constants by value (constants.h), attributes against the op's defaults, axes counted from
// either end;
// - chains of Reshape, Squeeze, Unsqueeze and Flatten are one view, compared by the shape of its
// result; Expand likewise;
// - Cast to the type that a value has already, and Expand to the shape that it has already, may be
// missing;
// - whatever the pattern computes from shapes and constants alone is compared by its contents where
// the graph's are known;
// - Slice by the range that it takes.
//
// Inner values may be neither graph outputs nor read outside the match, unless they derive from
// metadata (PatternValue::metadata) or their readers serve the match alone.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/passes/edit/graph_index.h"
#include "pagefuse/passes/rewrite/pattern.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {

struct MatchScope {
  Graph* graph = nullptr;
  const OpsetImports* opsets = nullptr;
  const GraphIndex* index = nullptr;
  const SymbolicContents* contents = nullptr;
  // False: nobody asks for the reason of a failure, and a match that cannot succeed is given up
  // where that shows first.
  bool explain = true;
};

struct MatchResult {
  bool matched = false;
  int matched_nodes = 0;  // of the attempt that got furthest
  std::string reason;     // the first thing that failed in it; empty unless asked for
  // Nodes of the pattern and what they are in the graph, in that attempt; if asked for.
  std::vector<std::pair<const Node*, const Node*>> nodes;
};

// The position in Pattern::outputs where a search starts.
int AnchorOutput(const Pattern& pattern);
// Types of the nodes that may compute the anchor.
std::vector<std::string> AnchorTypes(const Pattern& pattern);

// False where the graph lacks nodes of one of the types, or of what mirrors it: what cannot do
// without them has no match there.
bool HasAll(const GraphIndex& index, const std::vector<std::string>& op_types);

// Matches with the pattern's anchor at `anchor`. Where the structure fits, `accept` has the last
// word; if it refuses, other ways to bind (commutative operands, other outputs) are tried, a
// bounded number of times.
MatchResult MatchAt(const Pattern& pattern, const MatchScope& scope, Value* anchor,
                    const std::function<absl::Status(Match&)>& accept);

}  // namespace pagefuse
