// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/model_diff.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/debug/node_pairing.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_snapshot.h"

namespace pagefuse {
namespace {

std::string PortText(const Value& value) {
  return StrCat(TypeText(value), " \"", value.name(), "\"");
}

// "layer 3" of "layers.3.mlp", "model/layers_3/x" and the like.
std::string LayerIn(const std::string& name) {
  for (const std::string_view word : {"layers", "layer", "blocks", "h"}) {
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      const bool starts = at == 0 || std::isalnum(static_cast<unsigned char>(name[at - 1])) == 0;
      size_t digit = at + word.size();
      if (!starts || digit >= name.size() || (name[digit] != '.' && name[digit] != '_')) continue;
      const size_t begin = ++digit;
      while (digit < name.size() && std::isdigit(static_cast<unsigned char>(name[digit])) != 0) {
        ++digit;
      }
      if (digit > begin) return StrCat("layer ", name.substr(begin, digit - begin));
    }
  }
  return "";
}

std::string LayerOf(const Node& node) {
  std::string layer = LayerIn(node.name);
  for (const auto* values : {&node.outputs(), &node.inputs()}) {
    for (const Value* value : *values) {
      if (layer.empty() && value != nullptr) layer = LayerIn(value->name());
    }
  }
  return layer;
}

class Differ {
 public:
  Differ(const Model& before, const Model& after)
      : before_(*before.graph), after_(*after.graph), pairs_(before_, after_) {}

  ModelDiff Run() {
    CountOps();
    for (const Value* value : pairs_.removed_inputs())
      diff_.inputs.push_back("- " + PortText(*value));
    for (const Value* value : pairs_.added_inputs())
      diff_.inputs.push_back("+ " + PortText(*value));
    DiffOutputs();
    CollectNodes();
    MakeHunks();
    DiffConstants();
    return std::move(diff_);
  }

 private:
  void CountOps() {
    std::map<std::string, std::pair<int, int>> all;
    for (const auto& node : before_.nodes()) ++all[OpName(*node)].first;
    for (const auto& node : after_.nodes()) ++all[OpName(*node)].second;
    for (const auto& [op, counts] : all) {
      if (counts.first == counts.second) {
        ++diff_.ops_alike;
      } else {
        diff_.ops[op] = counts;
      }
    }
  }

  // Outputs are what they are called; where none of them is, their order.
  void DiffOutputs() {
    const auto has = [](const Graph& graph, const std::string& name) {
      const auto& outputs = graph.outputs();
      return std::ranges::any_of(outputs,
                                 [&name](const Value* output) { return output->name() == name; });
    };
    for (const Value* output : before_.outputs()) {
      if (!has(after_, output->name())) diff_.outputs.push_back("- " + PortText(*output));
    }
    for (const Value* output : after_.outputs()) {
      if (!has(before_, output->name())) diff_.outputs.push_back("+ " + PortText(*output));
    }
    const bool renamed = before_.outputs().size() == after_.outputs().size() &&
                         diff_.outputs.size() == 2 * before_.outputs().size();
    if (renamed) diff_.outputs.clear();
  }

  // True if both stand for the same: paired, constants in one place, or parts of what differs.
  bool SameOrigin(const Value* a, const Value* b) const {
    if (a == nullptr || b == nullptr) return a == b;
    if (pairs_.BeforeOf(b) == a && pairs_.AfterOf(a) == b) return true;
    if (a->initializer() != nullptr && b->initializer() != nullptr) return true;
    return pairs_.AfterOf(a) == nullptr && pairs_.BeforeOf(b) == nullptr &&
           a->producer() != nullptr && b->producer() != nullptr;
  }

  bool ReadsTheSame(const Node& a, const Node& b) const {
    if (a.num_inputs() != b.num_inputs()) return false;
    for (int i = 0; i < a.num_inputs(); ++i) {
      if (!SameOrigin(a.input(i), b.input(i))) return false;
    }
    return true;
  }

  void CollectNodes() {
    for (const auto& node : before_.nodes()) {
      const Node* other = pairs_.AfterOf(node.get());
      if (other != nullptr && ReadsTheSame(*node, *other)) continue;
      removed_.insert(node.get());
      if (other != nullptr) added_.insert(other);
    }
    for (const auto& node : after_.nodes()) {
      if (pairs_.BeforeOf(node.get()) == nullptr) added_.insert(node.get());
    }
  }

  // The node as text, with the names of the first graph.
  std::string LineOf(const Node& node, bool is_after) const {
    Graph scratch;
    absl::flat_hash_map<std::string, Value*> values;
    const auto value_of = [&](const Value* value) -> Value* {
      if (value == nullptr) return nullptr;
      const Value* before = is_after ? pairs_.BeforeOf(value) : value;
      const std::string& name = before == nullptr ? value->name() : before->name();
      Value*& made = values[name];
      if (made == nullptr) made = scratch.AddValue(name);
      return made;
    };
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node.inputs()) inputs.push_back(value_of(input));
    for (const Value* output : node.outputs()) {
      Value* made = value_of(output);
      if (made != nullptr && std::ranges::count(inputs, made) > 0) {
        made = scratch.AddValue(scratch.UniqueName(output->name()));
      }
      outputs.push_back(made);
    }
    Graph::ValueMap map;
    Node* copy = scratch.AddNode(node.domain(), node.op_type(), inputs, outputs);
    for (const auto& [name, attribute] : node.attributes()) {
      if (!std::holds_alternative<std::shared_ptr<Graph>>(attribute.value)) {
        copy->SetAttribute(name, Graph::CloneAttribute(attribute, &scratch, map));
      }
    }
    return NodeLine(*copy);
  }

  // Nodes that touch each other in either graph, through pairs too, make one hunk.
  void MakeHunks() {
    absl::flat_hash_set<const Node*> done;
    for (const auto& node : before_.nodes()) {
      if (removed_.contains(node.get()) && !done.contains(node.get())) {
        AddHunk(Touching(node.get(), done));
      }
    }
    for (const auto& node : after_.nodes()) {
      if (added_.contains(node.get()) && !done.contains(node.get())) {
        AddHunk(Touching(node.get(), done));
      }
    }
  }

  static void AddNeighbours(const Node& node, std::vector<const Node*>& todo) {
    for (const Value* input : node.inputs()) {
      if (input != nullptr && input->producer() != nullptr) todo.push_back(input->producer());
    }
    for (const Value* output : node.outputs()) {
      if (output == nullptr) continue;
      for (const Use& use : output->uses()) todo.push_back(use.node);
    }
  }

  absl::flat_hash_set<const Node*> Touching(const Node* first,
                                            absl::flat_hash_set<const Node*>& done) const {
    absl::flat_hash_set<const Node*> hunk;
    std::vector<const Node*> todo = {first};
    while (!todo.empty()) {
      const Node* node = todo.back();
      todo.pop_back();
      const bool differs = removed_.contains(node) || added_.contains(node);
      if (!differs || !done.insert(node).second) continue;
      hunk.insert(node);
      AddNeighbours(*node, todo);
      // What stands in the same place of the other graph.
      for (const Node* other : Opposite(*node)) todo.push_back(other);
    }
    return hunk;
  }

  // Nodes of the other graph that read, or are read by, the pair of what this one reads.
  std::vector<const Node*> Opposite(const Node& node) const {
    const bool is_after = node.graph() == &after_;
    std::vector<const Node*> others;
    if (const Node* pair = is_after ? pairs_.BeforeOf(&node) : pairs_.AfterOf(&node)) {
      others.push_back(pair);
    }
    for (const Value* output : node.outputs()) {
      if (output == nullptr) continue;
      for (const Use& use : output->uses()) {
        const Node* reader = is_after ? pairs_.BeforeOf(use.node) : pairs_.AfterOf(use.node);
        const Value* there = reader == nullptr ? nullptr : reader->input(use.index);
        if (there != nullptr && there->producer() != nullptr) others.push_back(there->producer());
      }
      if (!output->is_output()) continue;
      const Value* there = (is_after ? before_ : after_).FindValue(output->name());
      if (there != nullptr && there->producer() != nullptr) others.push_back(there->producer());
    }
    return others;
  }

  void AddHunk(const absl::flat_hash_set<const Node*>& nodes) {
    ModelDiff::Hunk hunk;
    for (const auto& node : before_.nodes()) {
      if (!nodes.contains(node.get())) continue;
      Describe(*node, /*is_after=*/false, hunk);
      hunk.removed.push_back(LineOf(*node, false));
    }
    for (const auto& node : after_.nodes()) {
      if (!nodes.contains(node.get())) continue;
      Describe(*node, /*is_after=*/true, hunk);
      hunk.added.push_back(LineOf(*node, true));
    }
    diff_.hunks.push_back(std::move(hunk));
  }

  void Describe(const Node& node, bool is_after, ModelDiff::Hunk& hunk) const {
    if (hunk.layer.empty()) hunk.layer = LayerOf(node);
    for (const Value* input : node.inputs()) {
      if (!hunk.from.empty() || input == nullptr || input->initializer() != nullptr) continue;
      const Node* producer = input->producer();
      if (producer != nullptr && (removed_.contains(producer) || added_.contains(producer)))
        continue;
      const Value* before = is_after ? pairs_.BeforeOf(input) : input;
      if (before != nullptr) hunk.from = before->name();
    }
  }

  // Constants in the same places of nodes that belong together.
  void DiffConstants() {
    absl::flat_hash_set<const Value*> seen;
    for (const auto& node : before_.nodes()) {
      const Node* other = pairs_.AfterOf(node.get());
      if (other == nullptr) continue;
      for (int i = 0; i < std::min(node->num_inputs(), other->num_inputs()); ++i) {
        const Value* a = node->input(i);
        const Value* b = other->input(i);
        if (a == nullptr || b == nullptr || a->initializer() == nullptr ||
            b->initializer() == nullptr || !seen.insert(a).second) {
          continue;
        }
        Compare(*a, *b->initializer());
      }
    }
  }

  void Compare(const Value& value, const Tensor& after) {
    const Tensor& before = *value.initializer();
    const bool alike = before.dtype() == after.dtype() && before.dims() == after.dims();
    if (alike && (IsAbsent(before) || IsAbsent(after) || before.IdenticalTo(after))) {
      ++diff_.constants_alike;
      return;
    }
    ModelDiff::Constant constant{.name = value.name(), .largest = {}, .detail = {}};
    if (!alike) {
      constant.detail = StrCat(DataTypeName(before.dtype()), DimsToString(before.dims()), " and ",
                               DataTypeName(after.dtype()), DimsToString(after.dims()));
    } else if (const auto a = Numbers(before, before.size()), b = Numbers(after, after.size());
               a && b) {
      double largest = 0;
      for (size_t i = 0; i < a->size(); ++i) {
        largest = std::max(largest, std::abs((*a)[i] - (*b)[i]));
      }
      constant.largest = largest;
    }
    diff_.constants.push_back(std::move(constant));
  }

  const Graph& before_;
  const Graph& after_;
  NodePairing pairs_;
  absl::flat_hash_set<const Node*> removed_, added_;
  ModelDiff diff_;
};

std::string OpsLine(const ModelDiff& diff) {
  std::string text;
  for (const auto& [op, counts] : diff.ops) {
    StrAppend(&text, text.empty() ? "ops: " : ", ", op, " ", counts.first, " -> ", counts.second);
  }
  if (text.empty()) return "";
  return StrCat(text, ", ", diff.ops_alike, " others the same\n");
}

std::string ConstantsLine(const ModelDiff& diff) {
  std::string text;
  for (const ModelDiff::Constant& constant : diff.constants) {
    StrAppend(&text, text.empty() ? "constants: " : ", ", "\"", constant.name, "\" differs");
    if (constant.largest) {
      char number[32];
      std::snprintf(number, sizeof(number), "%.1e", *constant.largest);
      StrAppend(&text, " (largest ", number, ")");
    } else if (!constant.detail.empty()) {
      StrAppend(&text, " (", constant.detail, ")");
    }
  }
  if (text.empty()) return "";
  return StrCat(text, ", ", diff.constants_alike, " the same\n");
}

std::string PortsLine(std::string_view what, const std::vector<std::string>& ports) {
  std::string text;
  for (const std::string& port : ports) StrAppend(&text, text.empty() ? "" : ", ", port);
  return text.empty() ? "" : StrCat(what, ": ", text, "\n");
}

}  // namespace

ModelDiff DiffModels(const Model& before, const Model& after) {
  return Differ(before, after).Run();
}

std::string ModelDiffText(const ModelDiff& diff) {
  if (diff.same()) return "same\n";
  std::string text =
      StrCat(OpsLine(diff), PortsLine("inputs", diff.inputs), PortsLine("outputs", diff.outputs));
  for (const ModelDiff::Hunk& hunk : diff.hunks) {
    std::string place = hunk.layer;
    if (!hunk.from.empty()) {
      StrAppend(&place, place.empty() ? "" : ", ", "from \"", hunk.from, "\"");
    }
    StrAppend(&text, "@ ", place.empty() ? "no input" : place, ":\n");
    for (const std::string& line : hunk.removed) StrAppend(&text, "-   ", line, "\n");
    for (const std::string& line : hunk.added) StrAppend(&text, "+   ", line, "\n");
  }
  return text + ConstantsLine(diff);
}

}  // namespace pagefuse
