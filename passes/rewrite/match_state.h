// SPDX-License-Identifier: Apache-2.0
// The matcher's working state: what is bound so far, and what is still to be proved. It is private
// to matcher*.cc.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/passes/rewrite/matcher.h"

namespace pagefuse {

// "This pattern value is that graph value." A null graph value stands for an omitted input.
struct Obligation {
  int pattern = -1;
  Value* value = nullptr;
  int rank = -1;            // not negative: a list of axes of a tensor of that rank
  bool any_number = false;  // integers and floats alike
};

// What can be proved only once all values are bound.
struct Deferred {
  enum class Kind {
    kShape,     // the result of the pattern's view or Expand has the shape of the graph value
    kContents,  // the pattern value's contents, computed from shapes, are those of the graph value
    kSlice,     // two Slice nodes take the same range
  };
  Kind kind = Kind::kShape;
  int pattern = -1;
  Value* value = nullptr;
};

// A view node that the match goes through. Where it reads the match's border it may keep other
// readers.
struct CrossedView {
  Node* node = nullptr;
  bool at_border = false;
};

// One way to meet an obligation.
struct Step {
  int bind = -1;  // pattern value, to `bind_to`
  Value* bind_to = nullptr;
  const Node* pattern_node = nullptr;  // is `node`
  Node* node = nullptr;
  std::vector<Obligation> todo = {};
  std::vector<Deferred> deferred = {};
  std::vector<CrossedView> views = {};
  std::vector<std::pair<std::string, Attribute>> attributes = {};
};

struct MatchState {
  std::vector<Value*> bound;  // by pattern value id
  std::vector<std::pair<const Node*, Node*>> nodes;
  std::vector<CrossedView> views;
  std::vector<Obligation> todo;
  std::vector<Deferred> deferred;
  std::map<std::string, Attribute, std::less<>> attributes;
  std::map<std::string, Dim, std::less<>> dims;

  // How far a match got, in nodes.
  int depth() const { return static_cast<int>(nodes.size() + views.size()); }
  bool Holds(const Node* graph_node) const {
    for (const auto& [p, g] : nodes) {
      if (g == graph_node) return true;
    }
    return false;
  }
};

// --- matcher_node.cc ---

// Compares the attributes of two nodes of one op; references of the pattern go into `bindings`.
absl::Status MatchAttributes(const Node& pattern, const Node& graph, const OpsetImports& opsets,
                             std::vector<std::pair<std::string, Attribute>>& bindings);
bool SameAttribute(const Attribute& a, const Attribute& b);
// True if both nodes have the same attributes.
bool HaveSameAttributes(const Node& a, const Node& b);
bool IsCommutative(const Node& node);
// The op that computes the same with exchanged operands: Less for Greater; empty for others.
std::string_view MirroredType(std::string_view op_type);
// The attribute that a reference in a Constant node binds, from the tensor in the graph.
absl::StatusOr<Attribute> AttributeFromConstant(const Node& pattern_constant, const Tensor& tensor);

// --- matcher_proof.cc ---

// Proves the deferred claims of a state whose values are all bound.
absl::Status ProveDeferred(const Pattern& pattern, const MatchScope& scope,
                           const MatchState& state);
// Checks that no inner value is a graph output or has readers that outlive the match.
absl::Status CheckInnerValues(const Pattern& pattern, const MatchState& state);

}  // namespace pagefuse
