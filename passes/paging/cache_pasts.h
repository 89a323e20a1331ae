// SPDX-License-Identifier: Apache-2.0
// The inputs by which a graph is given the keys and values of earlier tokens, and the outputs that
// give them back with the new ones, in whatever layout (analysis/attention/joined_rows.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

struct CachePast {
  Value* input = nullptr;
  std::string place;  // the part of the input that is read, as in "[0]"; empty: all of it
  // What each axis of the input runs over: "batch", "head", "token", "channel", from a number on, as
  // in "channel + 4"; or the number that is read.
  std::vector<std::string> axes;
  // The output that has the same rows at the same places, and behind them the new ones, in a type
  // that keeps them; null if none is proved to.
  Value* present = nullptr;
};

class CachePasts {
 public:
  CachePasts(const Graph& graph, const SymbolicContents& contents);

  // Of keys or values of an Attention. FailedPrecondition if their past is no part of an input.
  absl::StatusOr<CachePast> Find(const Node& attention, bool keys) const;

 private:
  const SymbolicContents& contents_;
  std::map<const Value*, std::vector<Value*>> outputs_;  // that rows of an input may go to
};

}  // namespace pagefuse
