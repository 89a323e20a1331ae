// SPDX-License-Identifier: Apache-2.0
// Replaces a subgraph that was read by element: all new nodes are built first, and removed again if
// one cannot be built.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// FailedPrecondition where a value that was computed between the reading's borders and its results
// is a graph output or has other readers. Moved elements and integers may have some.
absl::Status ServesOnly(const IndexingAnalysis& reader, const std::vector<Value*>& results);

class Replacement {
 public:
  // Nodes go before that of `output`; fused ones are marked with the rule's name.
  Replacement(Graph& graph, const Value& output, std::string_view rule);

  GraphBuilder& builder() { return builder_; }
  // Erases what was built.
  void Undo();
  // Lets the readers of each value of `old` read the same one of `results` and erases what is dead
  // then. Undone where there are no results.
  absl::Status Finish(const absl::StatusOr<std::vector<Value*>>& results,
                      const std::vector<Value*>& old, OpsetImports& opsets,
                      SymbolicContents& contents);
  // Types and shapes of what was built.
  absl::Status Infer(OpsetImports& opsets, SymbolicContents& contents);

 private:
  std::vector<Node*> Built() const;

  Graph& graph_;
  std::string rule_;
  GraphBuilder builder_;
  absl::flat_hash_set<const Node*> before_;
  absl::flat_hash_set<const Value*> constants_;
};

}  // namespace pagefuse
