// SPDX-License-Identifier: Apache-2.0
// Pairs the nodes of one graph with those of another.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

class NodePairing {
 public:
  NodePairing(const Graph& before, const Graph& after);

  // The node (value) of the other graph; null where it has none.
  const Node* AfterOf(const Node* before) const { return Find(nodes_, before); }
  const Node* BeforeOf(const Node* after) const { return Find(back_, after); }
  const Value* BeforeOf(const Value* after) const;
  const Value* AfterOf(const Value* before) const;

  // Inputs of one graph alone.
  const std::vector<const Value*>& removed_inputs() const { return removed_; }
  const std::vector<const Value*>& added_inputs() const { return added_; }

 private:
  template <typename Map, typename Key>
  static auto Find(const Map& map, const Key* key) -> typename Map::mapped_type {
    const auto it = map.find(key);
    return it == map.end() ? nullptr : it->second;
  }

  void PairInputs(const Graph& before, const Graph& after);
  void PairBy(const absl::flat_hash_map<const Node*, size_t>& before_keys,
              const absl::flat_hash_map<const Node*, size_t>& after_keys, const Graph& before,
              const Graph& after);
  void Spread(const Graph& before);
  bool Pair(const Node* a, const Node* b);
  void PairProducers(const Node& a, const Node& b, std::vector<const Node*>& todo);
  void PairReaders(const Node& a, const Node& b, std::vector<const Node*>& todo);

  absl::flat_hash_map<const Node*, const Node*> nodes_, back_;
  absl::flat_hash_map<const Value*, const Value*> inputs_, inputs_back_;
  std::vector<const Value*> removed_, added_;
};

// The op and its attributes, as text.
std::string OpText(const Node& node);

}  // namespace pagefuse
