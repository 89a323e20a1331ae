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
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

// Initialisers above this size, or without data, are compared by their place in memory only.
constexpr int64_t kMaxCompared = 64 << 10;

template <typename T>
void AppendBytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Type, dims and bytes of a tensor; nullopt if it is too large to compare.
std::optional<std::string> TensorKey(const Tensor& tensor) {
  std::string key = StrCat(DataTypeName(tensor.dtype()), DimsToString(tensor.dims()), ":");
  if (tensor.dtype() == DataType::kString) {
    for (const std::string& text : tensor.strings()) StrAppend(&key, text.size(), ":", text);
  } else if (tensor.byte_size() <= kMaxCompared && !IsAbsent(tensor)) {
    if (tensor.byte_size() > 0) {
      key.append(static_cast<const char*>(tensor.data()), tensor.byte_size());
    }
  } else {
    AppendBytes(key, tensor.data());
  }
  return key;
}

template <typename T>
void AppendList(std::string& key, const std::vector<T>& values) {
  AppendBytes(key, values.size());
  for (const T& value : values) AppendBytes(key, value);
}

// Nullopt for attributes that are not compared (graphs, references, ...).
std::optional<std::string> AttributeKey(const Attribute& attribute) {
  std::string key;
  AppendBytes(key, attribute.value.index());
  const auto& value = attribute.value;
  if (const auto* x = std::get_if<float>(&value)) return AppendBytes(key, *x), key;
  if (const auto* x = std::get_if<int64_t>(&value)) return AppendBytes(key, *x), key;
  if (const auto* x = std::get_if<std::string>(&value)) return key + *x;
  if (const auto* x = std::get_if<std::vector<float>>(&value)) return AppendList(key, *x), key;
  if (const auto* x = std::get_if<std::vector<int64_t>>(&value)) return AppendList(key, *x), key;
  if (const auto* x = std::get_if<Tensor>(&value)) return TensorKey(*x);
  if (const auto* x = std::get_if<AttributeRef>(&value)) return StrCat(key, "@", x->name);
  return std::nullopt;
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
    changed = changed || !merged.empty();
    return changed;
  }

 private:
  absl::StatusOr<bool> MergeInitializer(Value* value) {
    auto key = TensorKey(*value->initializer());
    if (!key.has_value()) return false;
    const auto [it, inserted] = initializers_.emplace(*std::move(key), value);
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
    for (const AttributeDef& def : op.attributes()) {
      if (def.name != name) continue;
      if (const auto* x = std::get_if<int64_t>(&def.default_value)) {
        const auto* y = std::get_if<int64_t>(&attribute.value);
        return y != nullptr && *x == *y;
      }
      if (const auto* x = std::get_if<float>(&def.default_value)) {
        const auto* y = std::get_if<float>(&attribute.value);
        return y != nullptr && *x == *y;
      }
      if (const auto* x = std::get_if<std::string>(&def.default_value)) {
        const auto* y = std::get_if<std::string>(&attribute.value);
        return y != nullptr && *x == *y;
      }
    }
    return false;
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
