// SPDX-License-Identifier: Apache-2.0
// cse: computes equal values once. Values are numbered by what they hold, not only by the node that
// computes them: sizes that are provably equal are one value, wherever they were read.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/content_key.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

// Initialisers above this size, or without data, are compared by their place in memory only.
constexpr int64_t kMaxCompared = 64 << 10;

// Nullopt for attributes that are not compared.
std::optional<std::string> AttributeKey(const Attribute& attribute) {
  std::string key;
  if (const auto* ref = std::get_if<AttributeRef>(&attribute.value)) return StrCat("@", ref->name);
  return AppendAttribute(key, attribute, kMaxCompared) ? std::optional(key) : std::nullopt;
}

class ValueNumbering {
 public:
  ValueNumbering(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model), context_(context), graph_(*scope.graph), opsets_(*scope.opsets) {}

  absl::StatusOr<bool> Run() {
    bool changed = false;
    for (Value* value : graph_.initializers()) {
      if (value->is_input()) continue;
      PF_ASSIGN_OR_RETURN(const bool merged, MergeInitializer(value));
      changed = changed || merged;
    }
    // Nodes are erased last: one that loses its readers now may still stand for a later one.
    std::vector<Node*> merged;
    for (Node* node : NodesOf(graph_)) {
      if (!MergeContents(*node) && !MergeNode(*node)) continue;
      merged.push_back(node);
      PF_RETURN_IF_ERROR(context_.Rewrote(model_, "cse"));
    }
    absl::flat_hash_set<const Node*> erased;
    for (Node* node : merged) {
      if (erased.contains(node)) continue;
      for (const Node* dead : EraseDead(node, context_.contents)) erased.insert(dead);
    }
    return changed || !merged.empty();
  }

 private:
  absl::StatusOr<bool> MergeInitializer(Value* value) {
    std::string key;
    AppendTensor(key, *value->initializer(), kMaxCompared);
    const auto [it, inserted] = initializers_.emplace(std::move(key), value);
    if (inserted || !ReplaceValue(graph_, value, it->second)) return false;
    if (value->uses().empty() && !value->is_output()) {
      context_.contents.erase(value);
      graph_.EraseValue(value);
    }
    PF_RETURN_IF_ERROR(context_.Rewrote(model_, "cse"));
    return true;
  }

  // Equal contents, type and rank: one value. The first to be computed stays.
  bool MergeContents(Node& node) {
    bool changed = false;
    for (Value* output : node.outputs()) {
      if (output == nullptr || !output->shape().has_value()) continue;
      const auto known = context_.contents.find(output);
      if (known == context_.contents.end() || output->shape()->rank() > 1) continue;
      std::string key = StrCat(DataTypeName(output->dtype()), ":", output->shape()->rank(), ":");
      const bool all_known =
          std::ranges::all_of(known->second, [](const Dim& dim) { return dim.known(); });
      if (!all_known) continue;
      for (const Dim& dim : known->second) StrAppend(&key, dim.ToString(), ",");
      const auto [it, inserted] = contents_.emplace(std::move(key), output);
      if (!inserted) changed = ReplaceValue(graph_, output, it->second) || changed;
    }
    return changed;
  }

  bool MergeNode(Node& node) {
    auto key = NodeKey(node);
    if (!key.has_value()) return false;
    const auto [it, inserted] = nodes_.emplace(*std::move(key), &node);
    if (inserted) return false;
    bool changed = false;
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (node.output(i) == nullptr) continue;
      changed = ReplaceValue(graph_, node.output(i), it->second->output(i)) || changed;
    }
    return changed;
  }

  // Everything that decides what a node computes; nullopt if two equal nodes may compute different
  // things.
  std::optional<std::string> NodeKey(const Node& node) const {
    if (node.op_type().starts_with("Random") || node.Is("Multinomial") || node.Is("Bernoulli")) {
      return std::nullopt;
    }
    const OpDef* op = FindOpDef(node, opsets_);
    if (!node.Subgraphs().empty() || (op != nullptr && IsForeign(*op))) return std::nullopt;
    std::string key = StrCat(node.domain(), "\n", node.op_type(), "\n", node.overload, "\n");
    std::vector<const Value*> inputs(node.inputs().begin(), node.inputs().end());
    if (IsCommutative(node)) std::ranges::sort(inputs);
    for (const Value* input : inputs) AppendBytes(key, input);
    for (const Value* output : node.outputs()) key += output == nullptr ? '-' : '+';
    std::vector<std::string> attributes;
    for (const auto& [name, attribute] : node.attributes()) {
      if (op != nullptr && IsDefault(*op, name, attribute)) continue;
      const auto attribute_key = AttributeKey(attribute);
      if (!attribute_key.has_value()) return std::nullopt;
      attributes.push_back(StrCat(name, "=", attribute_key->size(), ":", *attribute_key));
    }
    std::ranges::sort(attributes);
    for (const std::string& attribute : attributes) key += attribute;
    return key;
  }

  static bool IsDefault(const OpDef& op, std::string_view name, const Attribute& attribute) {
    const auto value = DefaultAttribute(op, name);
    const auto key = AttributeKey(attribute);
    return value.has_value() && key.has_value() && key == AttributeKey(*value);
  }

  Model& model_;
  PassContext& context_;
  Graph& graph_;
  const OpsetImports& opsets_;
  absl::flat_hash_map<std::string, Value*> initializers_;
  absl::flat_hash_map<std::string, Value*> contents_;
  absl::flat_hash_map<std::string, Node*> nodes_;
};

}  // namespace

std::unique_ptr<Pass> Cse() {
  return MakeGraphPass(
      "cse",
      "Eliminates common subexpressions: equal nodes, equal initialisers, and sizes that are "
      "provably the same.",
      [](Model& model, PassContext& context, const GraphScope& scope) {
        return ValueNumbering(model, context, scope).Run();
      });
}

}  // namespace pagefuse
