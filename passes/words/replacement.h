// Replacing what a reading by element covered: nodes built beforehand, undone if one cannot be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/words/element.h"

namespace pagefuse {

// FailedPrecondition where a value that was computed between the reading's borders and its results
// is a graph output or has other readers. Moved elements and integers may have some.
absl::Status ServesOnly(const ElementReader& reader, const std::vector<const Value*>& results);

class Replacement {
 public:
  // Nodes go before that of `output`; fused ones are marked with the rule's name.
  Replacement(Graph& graph, Value& output, std::string_view rule);

  GraphBuilder& builder() { return builder_; }
  // Erases what was built.
  void Undo();
  // Lets the readers of `output` read `result` and erases what is dead then.
  absl::Status Finish(Value* result, OpsetImports& opsets, SymbolicContents& contents);
  // After that: the same for another value that only dead nodes compute then.
  absl::Status Also(Value* old, Value* result, SymbolicContents& contents);
  // Types and shapes of what was built.
  absl::Status Infer(OpsetImports& opsets, SymbolicContents& contents);

 private:
  std::vector<Node*> Built() const;

  Graph& graph_;
  Value& output_;
  std::string rule_;
  GraphBuilder builder_;
  absl::flat_hash_set<const Node*> before_;
  absl::flat_hash_set<const Value*> constants_;
};

}  // namespace pagefuse
