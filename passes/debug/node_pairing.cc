// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/node_pairing.h"

#include <algorithm>
#include <string_view>

#include "absl/hash/hash.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/edit/graph_snapshot.h"

namespace pagefuse {
namespace {

using Keys = absl::flat_hash_map<const Node*, size_t>;
using ValueKeys = absl::flat_hash_map<const Value*, size_t>;

size_t Join(size_t a, size_t b) { return absl::HashOf(a, b); }

size_t KeyOfText(std::string_view text) { return absl::HashOf(AbslView(text)); }

size_t KeyOf(const Tensor& tensor) {
  const size_t key = KeyOfText(StrCat(DataTypeName(tensor.dtype()), DimsToString(tensor.dims())));
  if (IsAbsent(tensor) || tensor.byte_size() == 0) return key;
  return Join(key, KeyOfText({static_cast<const char*>(tensor.data()),
                              static_cast<size_t>(tensor.byte_size())}));
}

// By what computes a node: its op and those above it, up to the inputs and constants.
Keys KeysFromAbove(const Graph& graph, const ValueKeys& inputs) {
  Keys keys;
  ValueKeys values = inputs;
  const auto key_of = [&](const Value* value) -> size_t {
    if (value == nullptr) return 0;
    const auto it = values.find(value);
    if (it != values.end()) return it->second;
    return value->initializer() != nullptr ? values[value] = KeyOf(*value->initializer()) : 1;
  };
  for (const auto& node : graph.nodes()) {
    size_t key = KeyOfText(OpText(*node));
    for (const Value* input : node->inputs()) key = Join(key, key_of(input));
    keys[node.get()] = key;
    for (int i = 0; i < node->num_outputs(); ++i) {
      if (node->output(i) != nullptr) values[node->output(i)] = Join(key, i);
    }
  }
  return keys;
}

// By what becomes of a node: its op and its readers, down to the outputs.
Keys KeysFromBelow(const Graph& graph) {
  Keys keys;
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const Node& node = **it;
    size_t key = KeyOfText(OpText(node));
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value* output = node.output(i);
      if (output == nullptr) continue;
      std::vector<size_t> readers;
      for (const Use& use : output->uses()) {
        const auto found = keys.find(use.node);
        if (found != keys.end()) readers.push_back(Join(found->second, use.index));
      }
      for (size_t o = 0; o < graph.outputs().size(); ++o) {
        if (graph.outputs()[o] == output) readers.push_back(Join(~size_t{0}, o));
      }
      std::ranges::sort(readers);
      for (const size_t reader : readers) key = Join(key, reader);
      key = Join(key, i);
    }
    keys[&node] = key;
  }
  return keys;
}

bool SameType(const Value& a, const Value& b) {
  return a.dtype() == b.dtype() && a.shape().has_value() == b.shape().has_value() &&
         (!a.shape() || a.shape()->rank() == b.shape()->rank());
}

}  // namespace

std::string OpText(const Node& node) {
  const std::string line = NodeLine(node);
  size_t depth = 0, begin = 0;
  bool quoted = false;
  // From behind the first " = " to the parenthesis of the inputs, which is the last one that opens
  // outside of brackets.
  const size_t start = line.find(" = ");
  begin = start == std::string::npos ? 0 : start + 3;
  for (size_t i = begin; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quoted) {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '<' || c == '[' || c == '{')) {
      ++depth;
    } else if (!quoted && (c == '>' || c == ']' || c == '}')) {
      depth -= depth > 0 && !(c == '>' && i > 0 && line[i - 1] == '=') ? 1 : 0;
    } else if (!quoted && c == '(' && depth == 0) {
      return line.substr(begin, i - begin);
    }
  }
  return line.substr(begin);
}

NodePairing::NodePairing(const Graph& before, const Graph& after) {
  PairInputs(before, after);
  ValueKeys before_inputs, after_inputs;
  size_t next = 100;
  for (const auto& [a, b] : inputs_) {
    before_inputs[a] = after_inputs[b] = next++;
  }
  PairBy(KeysFromAbove(before, before_inputs), KeysFromAbove(after, after_inputs), before, after);
  PairBy(KeysFromBelow(before), KeysFromBelow(after), before, after);
  Spread(before);
}

void NodePairing::PairInputs(const Graph& before, const Graph& after) {
  for (const Value* a : before.inputs()) {
    const Value* b = after.FindValue(a->name());
    if (b == nullptr || !b->is_input()) continue;
    inputs_[a] = b;
    inputs_back_[b] = a;
  }
  for (const Value* a : before.inputs()) {
    if (!inputs_.contains(a)) removed_.push_back(a);
  }
  for (const Value* b : after.inputs()) {
    if (!inputs_back_.contains(b)) added_.push_back(b);
  }
  const bool alike = std::equal(removed_.begin(), removed_.end(), added_.begin(), added_.end(),
                                [](const Value* a, const Value* b) { return SameType(*a, *b); });
  if (!alike) return;
  for (size_t i = 0; i < removed_.size(); ++i) {
    inputs_[removed_[i]] = added_[i];
    inputs_back_[added_[i]] = removed_[i];
  }
  removed_.clear();
  added_.clear();
}

bool NodePairing::Pair(const Node* a, const Node* b) {
  if (a == nullptr || b == nullptr || nodes_.contains(a) || back_.contains(b)) return false;
  if (OpText(*a) != OpText(*b)) return false;
  nodes_[a] = b;
  back_[b] = a;
  return true;
}

void NodePairing::PairBy(const Keys& before_keys, const Keys& after_keys, const Graph& before,
                         const Graph& after) {
  absl::flat_hash_map<size_t, std::vector<const Node*>> by_key;
  for (const auto& node : after.nodes()) {
    if (!back_.contains(node.get())) by_key[after_keys.at(node.get())].push_back(node.get());
  }
  absl::flat_hash_map<size_t, size_t> taken;
  for (const auto& node : before.nodes()) {
    if (nodes_.contains(node.get())) continue;
    const size_t key = before_keys.at(node.get());
    const auto found = by_key.find(key);
    if (found == by_key.end() || taken[key] >= found->second.size()) continue;
    Pair(node.get(), found->second[taken[key]++]);
  }
}

void NodePairing::PairProducers(const Node& a, const Node& b, std::vector<const Node*>& todo) {
  for (int i = 0; i < std::min(a.num_inputs(), b.num_inputs()); ++i) {
    if (a.input(i) == nullptr || b.input(i) == nullptr) continue;
    const Node* above = a.input(i)->producer();
    if (Pair(above, b.input(i)->producer())) todo.push_back(above);
  }
}

void NodePairing::PairReaders(const Node& a, const Node& b, std::vector<const Node*>& todo) {
  for (int i = 0; i < std::min(a.num_outputs(), b.num_outputs()); ++i) {
    if (a.output(i) == nullptr || b.output(i) == nullptr) continue;
    for (const Use& use : a.output(i)->uses()) {
      if (nodes_.contains(use.node)) continue;
      for (const Use& other : b.output(i)->uses()) {
        if (other.index != use.index || !Pair(use.node, other.node)) continue;
        todo.push_back(use.node);
        break;
      }
    }
  }
}

// From pairs to their neighbours, as long as there are any.
void NodePairing::Spread(const Graph& before) {
  std::vector<const Node*> todo;
  for (const auto& node : before.nodes()) {
    if (nodes_.contains(node.get())) todo.push_back(node.get());
  }
  while (!todo.empty()) {
    const Node* a = todo.back();
    todo.pop_back();
    const Node* b = nodes_.at(a);
    PairProducers(*a, *b, todo);
    PairReaders(*a, *b, todo);
  }
}

const Value* NodePairing::BeforeOf(const Value* after) const {
  if (after == nullptr) return nullptr;
  if (after->producer() == nullptr) return Find(inputs_back_, after);
  const Node* node = BeforeOf(after->producer());
  return node == nullptr ? nullptr : node->output(after->producer_index());
}

const Value* NodePairing::AfterOf(const Value* before) const {
  if (before == nullptr) return nullptr;
  if (before->producer() == nullptr) return Find(inputs_, before);
  const Node* node = AfterOf(before->producer());
  return node == nullptr ? nullptr : node->output(before->producer_index());
}

}  // namespace pagefuse
