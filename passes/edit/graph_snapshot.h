// SPDX-License-Identifier: Apache-2.0
// What the nodes of a graph were at one time, and what a rewrite has made of them since: so that
// every rewrite has a place, whichever pass it is of.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// `y = Mul <a = 1> (x, w)`, without the node's name and metadata.
std::string NodeLine(const Node& node);
// "Add", "pagefuse.PagedAttention"; "float[T, 16]", "float[...]" of a value without a rank.
std::string OpName(const Node& node);
std::string TypeText(const Value& value);

// What became of a graph between two looks at it.
struct GraphChange {
  // Nodes that are new, or have another op, other attributes or other inputs. Nodes whose graphs or
  // functions may have changed count as changed.
  absl::flat_hash_set<const Node*> nodes;
  // Values that a node that stayed read, and what it reads in their place.
  std::vector<std::pair<std::string, std::string>> replaced;
  std::vector<std::string> taken, made;  // nodes that are gone and that are new, as text
  std::string at;                        // the value that others read another one of now
};

class GraphSnapshot {
 public:
  explicit GraphSnapshot(const Model& model) { Update(model); }

  // What changed since the last look; the graph as it is now is what the next look compares with.
  GraphChange Update(const Model& model);

 private:
  struct Seen {
    std::string domain, op_type;
    std::vector<std::string> inputs, outputs;
    std::vector<std::pair<std::string, Attribute>> attributes;
    std::string text;
    bool opaque = false;  // it calls graphs, which change without it
    int64_t look = 0;
    int64_t position = 0;
  };

  static Seen Look(const Model& model, const Node& node);
  void Visit(const Model& model, const Node& node, GraphChange& change);
  void TakeGone(const Graph& graph, GraphChange& change);
  std::string OutputMoved(const Graph& graph);

  absl::flat_hash_map<const Node*, Seen> nodes_;
  std::map<std::string, const Node*> outputs_;  // who computes them
  std::map<std::string, int64_t> opsets_;
  bool all_changed_ = false;  // an opset: every node may mean something else
  int64_t look_ = 0;
  int64_t position_ = 0;
};

}  // namespace pagefuse
