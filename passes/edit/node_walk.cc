// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/node_walk.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace pagefuse {

bool IsOneOf(const Node& node, const OpTypes& types) {
  return std::ranges::find(types, node.op_type()) != types.end();
}

namespace {

// Nodes that were walked through in vain, with at least so many steps left: there are more ways to a
// node than nodes.
class InVain {
 public:
  // False if the node needs not be walked through again.
  bool Try(const Node& node, int steps) {
    const auto [it, first] = tried_.try_emplace(&node, steps);
    if (!first && it->second >= steps) return false;
    it->second = steps;
    return true;
  }

 private:
  absl::flat_hash_map<const Node*, int> tried_;
};

struct Way {
  const NodeTest& passes;
  const OpTypes& through;
  InVain in_vain = {};

  const Node* Above(const Value* value, int steps) {
    const Node* node = value != nullptr ? value->producer() : nullptr;
    if (node == nullptr) return nullptr;
    if (passes(*node)) return node;
    if (steps == 0 || !IsOneOf(*node, through) || !in_vain.Try(*node, steps)) return nullptr;
    for (const Value* input : node->inputs()) {
      if (const Node* found = Above(input, steps - 1)) return found;
    }
    return nullptr;
  }

  const Node* Below(const Node& node, int steps) {
    if (!in_vain.Try(node, steps)) return nullptr;
    for (const Value* output : node.outputs()) {
      if (output == nullptr) continue;
      for (const Use& use : output->uses()) {
        if (passes(*use.node)) return use.node;
        if (steps == 0 || !IsOneOf(*use.node, through)) continue;
        if (const Node* found = Below(*use.node, steps - 1)) return found;
      }
    }
    return nullptr;
  }
};

}  // namespace

const Node* Above(const Value* value, const NodeTest& passes, const OpTypes& through, int steps) {
  return Way{passes, through}.Above(value, steps);
}

const Node* Below(const Node& node, const NodeTest& passes, const OpTypes& through, int steps) {
  return Way{passes, through}.Below(node, steps);
}

const Value* InputAbove(const Value* value, const OpTypes& through) {
  while (value != nullptr && !value->is_input()) {
    const Node* node = value->producer();
    if (node == nullptr || !IsOneOf(*node, through)) return nullptr;
    value = node->input(0);
  }
  return value;
}

bool ReachesOutput(const Value* value, const OpTypes& through, int steps) {
  std::vector<const Value*> values = {value};
  absl::flat_hash_set<const Value*> seen = {value};
  size_t next = 0;
  for (int step = 0; step <= steps; ++step) {
    for (const size_t end = values.size(); next < end; ++next) {
      if (values[next] == nullptr) continue;
      if (values[next]->is_output()) return true;
      for (const Use& use : values[next]->uses()) {
        if (!IsOneOf(*use.node, through)) continue;
        const Value* output = use.node->output(0);
        if (seen.insert(output).second) values.push_back(output);
      }
    }
  }
  return false;
}

namespace {

std::vector<const Node*> ReadersOf(const Node& node) {
  std::vector<const Node*> readers;
  for (const Value* output : node.outputs()) {
    if (output == nullptr) continue;
    for (const Use& use : output->uses()) readers.push_back(use.node);
  }
  return readers;
}

}  // namespace

std::vector<const Node*> Ahead(const Node& node, int steps) {
  std::vector<const Node*> ahead = {&node};
  absl::flat_hash_set<const Node*> seen = {&node};
  size_t begin = 0;
  for (int step = 0; step < steps; ++step) {
    const size_t end = ahead.size();
    for (; begin < end; ++begin) {
      for (const Node* reader : ReadersOf(*ahead[begin])) {
        if (seen.insert(reader).second) ahead.push_back(reader);
      }
    }
  }
  return ahead;
}

}  // namespace pagefuse
