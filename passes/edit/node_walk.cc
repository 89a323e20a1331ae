#include "pagefuse/passes/edit/node_walk.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace pagefuse {

bool IsOneOf(const Node& node, const OpTypes& types) {
  return std::ranges::find(types, node.op_type()) != types.end();
}

const Node* Above(const Value* value, const NodeTest& passes, const OpTypes& through, int steps) {
  const Node* node = value != nullptr ? value->producer() : nullptr;
  if (node == nullptr) return nullptr;
  if (passes(*node)) return node;
  if (steps == 0 || !IsOneOf(*node, through)) return nullptr;
  for (const Value* input : node->inputs()) {
    if (const Node* found = Above(input, passes, through, steps - 1)) return found;
  }
  return nullptr;
}

const Node* Below(const Node& node, const NodeTest& passes, const OpTypes& through, int steps) {
  for (const Value* output : node.outputs()) {
    if (output == nullptr) continue;
    for (const Use& use : output->uses()) {
      if (passes(*use.node)) return use.node;
      if (steps == 0 || !IsOneOf(*use.node, through)) continue;
      if (const Node* found = Below(*use.node, passes, through, steps - 1)) return found;
    }
  }
  return nullptr;
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
  if (value == nullptr) return false;
  if (value->is_output()) return true;
  return steps > 0 && std::ranges::any_of(value->uses(), [&](const Use& use) {
           return IsOneOf(*use.node, through) &&
                  ReachesOutput(use.node->output(0), through, steps - 1);
         });
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
