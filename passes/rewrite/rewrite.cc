// SPDX-License-Identifier: Apache-2.0
// Replacing a match: new nodes in, readers moved over, dead nodes out.
#include <algorithm>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/module_paths.h"
#include "pagefuse/passes/rewrite/rule_impl.h"
#include "pagefuse/passes/rewrite/written_ops.h"

namespace pagefuse {
namespace {

constexpr std::string_view kRuleKey = "pkg.pagefuse.rule";
constexpr std::string_view kFromKey = "pkg.pagefuse.from";

constexpr int64_t kAnyOpset = 1 << 20;

// The types that a port of `type`, a variable or a name, takes.
std::vector<DataType> TypesOf(const OpDef& op, const std::string& type) {
  for (const auto& [variable, types] : op.types()) {
    if (variable == type) return types;
  }
  const auto named = DataTypeFromName(type);
  return named ? std::vector<DataType>{*named} : std::vector<DataType>{};
}

class Rewrite {
 public:
  Rewrite(const Rule::Impl& rule, int pattern, const Match& match, const RewriteScope& scope)
      : rule_(rule),
        pattern_(*rule.compiled->patterns[pattern]),
        replacement_(rule.compiled->replacements[pattern]),
        match_(match),
        scope_(scope),
        last_(match.nodes.back()),
        last_position_(scope.index->position(last_)) {}

  absl::Status Run() {
    for (int output : pattern_.outputs) {
      old_outputs_.push_back(match_.value(pattern_[output].value->name()));
    }
    PF_RETURN_IF_ERROR(CheckNoCycle());
    absl::Status status = replacement_.body != nullptr ? Instantiate() : Build();
    if (status.ok()) status = CheckWritten();
    if (status.ok()) status = Type();
    if (!status.ok()) {
      Undo();
      return absl::IsInternal(status) ? status : absl::FailedPreconditionError(status.message());
    }
    Describe();
    MoveReaders();
    EraseMatch();
    return needs_sort_ ? Sort() : absl::OkStatus();
  }

 private:
  // Internal if a node is none that any graph could run: the rule is wrong, wherever it fits.
  absl::Status CheckWritten() const {
    for (const Node* node : new_nodes_) {
      const std::optional<WrittenFault> fault = FaultOfWritten(*node);
      if (fault)
        return absl::InternalError(StrCat("rule \"", rule_.name, "\" writes ", fault->message));
    }
    return absl::OkStatus();
  }

  bool InMatch(const Node* node) const {
    return std::ranges::find(match_.nodes, node) != match_.nodes.end();
  }

  // The new nodes stand where the last matched one stood. A reader of an output before that place
  // has to move behind it, which is possible unless an input of the match depends on it.
  absl::Status CheckNoCycle() {
    absl::flat_hash_set<const Value*> inputs;
    for (const PatternValue& value : pattern_.values) {
      if (value.kind == PatternKind::kInput) inputs.insert(match_.value(value.value->name()));
    }
    absl::flat_hash_set<const Node*> seen;
    std::vector<const Value*> pending;
    for (const Value* output : old_outputs_) pending.push_back(output);
    while (!pending.empty()) {
      const Value* value = pending.back();
      pending.pop_back();
      if (inputs.contains(value)) {
        return MatchFailure("input ", *value, " is computed from an output of the match");
      }
      for (const Node* reader : ReadersToMove(*value)) {
        needs_sort_ = true;
        if (!seen.insert(reader).second) continue;
        for (const Value* output : reader->outputs()) {
          if (output != nullptr) pending.push_back(output);
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<const Node*> ReadersToMove(const Value& value) const {
    std::vector<const Node*> readers;
    for (const Use& use : value.uses()) {
      const Node* reader = InThisGraph(use.node);
      if (reader == nullptr) continue;
      const int64_t position = scope_.index->position(reader);
      if (position < 0 || position > last_position_ || InMatch(reader)) continue;
      readers.push_back(reader);
    }
    return readers;
  }

  // The node itself, or the node of this graph whose subgraph it is in; null if there is none.
  const Node* InThisGraph(const Node* node) const {
    const Graph* graph = node->graph();
    if (graph == scope_.graph) return node;
    while (graph != nullptr && graph->parent() != scope_.graph) graph = graph->parent();
    return graph == nullptr ? nullptr : scope_.index->owner(graph);
  }

  // --- new nodes from text ---

  absl::Status Instantiate() {
    const Graph& body = *replacement_.body;
    absl::flat_hash_map<const Value*, Value*> values;
    for (const Value* input : body.inputs()) values[input] = match_.value(input->name());
    for (const Value* value : body.initializers()) {
      values[value] = NewConstant(value->name(), *value->initializer());
    }
    for (const auto& node : body.nodes()) PF_RETURN_IF_ERROR(Copy(*node, values));
    for (const Value* output : body.outputs()) {
      Value* value = values[output];
      if (value == nullptr) {
        return MatchFailure("replacement output ", *output, " is not bound");
      }
      new_outputs_.push_back(value);
    }
    EraseUnreadConstants();
    return absl::OkStatus();
  }

  // What constants of the text were computed from.
  void EraseUnreadConstants() {
    std::erase_if(new_constants_, [this](Value* value) {
      const bool read =
          !value->uses().empty() || std::ranges::find(new_outputs_, value) != new_outputs_.end();
      if (read) return false;
      scope_.contents->erase(value);
      scope_.graph->EraseValue(value);
      return true;
    });
  }

  Value* NewConstant(std::string_view name, Tensor tensor) {
    Value* value = AddConstant(*scope_.graph, name, std::move(tensor), *scope_.contents);
    new_constants_.push_back(value);
    return value;
  }

  // The attribute that a reference stands for; null if nothing was bound and the op has a default.
  absl::StatusOr<const Attribute*> Resolve(const Node& node, std::string_view name,
                                           const Attribute& attribute) const {
    const auto* reference = std::get_if<AttributeRef>(&attribute.value);
    if (reference == nullptr) return &attribute;
    const auto it = match_.attributes.find(reference->name);
    if (it != match_.attributes.end()) return &it->second;
    const OpDef* op = FindOpDef(node, *scope_.opsets);
    if (op != nullptr && DefaultAttribute(*op, name)) return static_cast<const Attribute*>(nullptr);
    return MatchFailure("\"@", reference->name, "\" is not bound");
  }

  absl::Status Copy(const Node& node, absl::flat_hash_map<const Value*, Value*>& values) {
    if (node.Is("Constant") && node.num_outputs() == 1 && !node.attributes().empty()) {
      const auto& [name, attribute] = node.attributes().front();
      PF_ASSIGN_OR_RETURN(const Attribute* resolved, Resolve(node, name, attribute));
      const auto tensor = resolved == nullptr ? std::nullopt : ConstantNodeValue(*resolved, name);
      if (!tensor.has_value()) {
        return MatchFailure(node, " has no value");
      }
      values[node.output(0)] = NewConstant(node.output(0)->name(), *tensor);
      return absl::OkStatus();
    }
    std::vector<Value*> inputs;
    for (const Value* input : node.inputs()) inputs.push_back(input ? values.at(input) : nullptr);
    while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
    std::vector<Value*> outputs;
    for (const Value* output : node.outputs()) {
      outputs.push_back(output == nullptr ? nullptr : NewValue(output->name()));
      if (output != nullptr) values[output] = outputs.back();
    }
    Node* created = scope_.graph->AddNode(node.domain(), node.op_type(), std::move(inputs),
                                          std::move(outputs), last_);
    CastIndices(*created);
    new_nodes_.push_back(created);
    for (const auto& [name, attribute] : node.attributes()) {
      PF_ASSIGN_OR_RETURN(const Attribute* resolved, Resolve(*created, name, attribute));
      if (resolved != nullptr) created->SetAttribute(name, *resolved);
    }
    if (replacement_.takes_all_attributes) TakeAttributes(*created);
    return IsComputedByText(*created) ? Fold(node, values) : absl::OkStatus();
  }

  // Whether a node reads constants of the text alone.
  bool IsComputedByText(const Node& node) const {
    return node.num_inputs() > 0 && std::ranges::all_of(node.inputs(), [this](const Value* input) {
             return std::ranges::find(new_constants_, input) != new_constants_.end();
           });
  }

  // Constants in place of the node that was made last, for `node` of the text.
  absl::Status Fold(const Node& node, absl::flat_hash_map<const Value*, Value*>& values) {
    Node* created = new_nodes_.back();
    std::vector<Tensor> inputs;
    for (const Value* input : created->inputs()) inputs.push_back(*input->initializer());
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                        EvaluateNode(*created, OpsetOf(*scope_.opsets, created->domain()), inputs));
    new_nodes_.pop_back();
    scope_.graph->EraseNode(created);
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (node.output(i) == nullptr) continue;
      values[node.output(i)] = NewConstant(node.output(i)->name(), outputs[i]);
    }
    return absl::OkStatus();
  }

  // Indices of another integer type than the port takes.
  void CastIndices(Node& node) {
    const OpDef* op = OpRegistry::Global().Find(node.domain(), node.op_type(), kAnyOpset);
    if (!op || op->domain().empty()) return;
    const int ports = std::min(node.num_inputs(), static_cast<int>(op->inputs().size()));
    for (int i = 0; i < ports; ++i) {
      const Value* input = node.input(i);
      if (!input || !IsInteger(input->dtype())) continue;
      const std::vector<DataType> types = TypesOf(*op, op->inputs()[i].type);
      const auto integer = std::ranges::find_if(types, IsInteger);
      if (integer == types.end() || std::ranges::count(types, input->dtype()) > 0) {
        continue;
      }
      node.SetInput(i, CastTo(node.input(i), *integer, &node));
    }
  }

  Value* CastTo(Value* value, DataType type, Node* before) {
    Value* cast = NewValue(value->name());
    Node* node = scope_.graph->AddNode("", "Cast", {value}, {cast}, before);
    node->SetAttribute("to", MakeAttribute(static_cast<int64_t>(type)));
    new_nodes_.push_back(node);
    return cast;
  }

  Value* NewValue(std::string_view name) {
    Value* value = scope_.graph->AddValue(scope_.graph->UniqueName(name));
    scope_.contents->erase(value);
    return value;
  }

  void TakeAttributes(Node& node) const {
    const OpDef* op = FindOpDef(node, *scope_.opsets);
    if (op == nullptr) return;
    for (const AttributeDef& def : op->attributes()) {
      const auto it = match_.attributes.find(def.name);
      if (it != match_.attributes.end()) node.SetAttribute(def.name, it->second);
    }
  }

  // --- new nodes from a builder ---

  absl::Status Build() {
    auto outputs = rule_.builder(match_, *scope_.graph, last_);
    if (outputs.ok()) {
      for (const Value* output : *outputs) CollectNew(output);
    }
    PF_RETURN_IF_ERROR(outputs.status());
    if (outputs->size() != old_outputs_.size()) {
      return MatchFailure("the builder returned ", outputs->size(), " values for ",
                          old_outputs_.size(), " outputs");
    }
    new_outputs_ = *std::move(outputs);
    return absl::OkStatus();
  }

  // Nodes that the index does not know, producers first.
  void CollectNew(const Value* value) {
    Node* node = value == nullptr ? nullptr : value->producer();
    if (node == nullptr || node->graph() != scope_.graph || scope_.index->alive(node)) return;
    if (std::ranges::find(new_nodes_, node) != new_nodes_.end()) return;
    for (const Value* input : node->inputs()) CollectNew(input);
    new_nodes_.push_back(node);
  }

  // --- checks and bookkeeping ---

  absl::Status Type() {
    for (Node* node : new_nodes_) {
      PF_RETURN_IF_ERROR(Import(*node));
      PF_RETURN_IF_ERROR(InferNode(*node, *scope_.opsets, *scope_.contents));
    }
    for (size_t i = 0; i < old_outputs_.size(); ++i) {
      Value*& to = new_outputs_[i];
      if (to == nullptr) continue;
      const DataType was = old_outputs_[i]->dtype();
      if (IsInteger(was) && IsInteger(to->dtype()) && was != to->dtype()) {
        to = CastTo(to, was, last_);
        PF_RETURN_IF_ERROR(InferNode(*to->producer(), *scope_.opsets, *scope_.contents));
      }
      PF_RETURN_IF_ERROR(CheckSameType(*old_outputs_[i], *to));
    }
    return absl::OkStatus();
  }

  // Makes the node's domain known to the model. A newer opset of a domain that is imported is not
  // for a rule to ask for.
  absl::Status Import(const Node& node) {
    const int64_t opset = OpsetOf(*scope_.opsets, node.domain());
    if (opset == 0) {
      const OpDef* op = FindOpDef(node, *scope_.opsets);
      (*scope_.opsets)[node.domain()] = op == nullptr ? 1 : op->since();
      return absl::OkStatus();
    }
    if (FindOpDef(node, *scope_.opsets) == nullptr &&
        OpRegistry::Global().Find(node.domain(), node.op_type(), kAnyOpset) != nullptr) {
      return MatchFailure("opset ", opset, " has no ", node.op_type());
    }
    return absl::OkStatus();
  }

  // A replacement of another type or shape means that the pattern was not understood.
  static absl::Status CheckSameType(const Value& from, Value& to) {
    const auto differs = [&](const std::string& was, const std::string& is) {
      return MatchFailure("the replacement of ", from, " is ", is, ", it was ", was);
    };
    if (to.dtype() == DataType::kUndefined) to.set_dtype(from.dtype());
    if (!to.shape().has_value()) to.set_shape(from.shape());
    if (from.dtype() != DataType::kUndefined && from.dtype() != to.dtype()) {
      return differs(std::string(DataTypeName(from.dtype())),
                     std::string(DataTypeName(to.dtype())));
    }
    if (!from.shape().has_value() || !to.shape().has_value()) return absl::OkStatus();
    Shape shape = *to.shape();
    bool same = from.shape()->rank() == shape.rank();
    for (int i = 0; same && i < shape.rank(); ++i) {
      const Dim& was = (*from.shape())[i];
      same = !was.is_constant() || !shape[i].is_constant() || was == shape[i];
      // The old shape was inferred from more of the graph.
      if (was.known() && !shape[i].is_constant()) shape[i] = was;
    }
    if (!same) return differs(from.shape()->ToString(), to.shape()->ToString());
    to.set_shape(shape);
    return absl::OkStatus();
  }

  void Undo() {
    for (auto it = new_nodes_.rbegin(); it != new_nodes_.rend(); ++it) {
      for (const Value* output : (*it)->outputs()) scope_.contents->erase(output);
      scope_.graph->EraseNode(*it);
    }
    for (Value* value : new_constants_) {
      if (value->uses().empty()) scope_.graph->EraseValue(value);
    }
  }

  // Name and provenance of the new nodes.
  void Describe() {
    std::vector<std::string> from;
    Metadata kept;
    for (auto it = match_.nodes.rbegin(); it != match_.nodes.rend(); ++it) {
      for (const auto& [key, value] : (*it)->metadata) {
        if (KeepsMetadata(key) && !FindMetadata(kept, key).has_value())
          kept.emplace_back(key, value);
      }
    }
    for (const Node* node : match_.nodes) {
      // What a fused node was made of says more than its own name.
      const auto origin = FindMetadata(node->metadata, kFromKey);
      const std::string names = origin.has_value() ? std::string(*origin) : NodeLabel(*node);
      for (absl::string_view name : absl::StrSplit(names, ',')) from.emplace_back(name);
    }
    std::set<std::string> seen;
    std::erase_if(from, [&seen](const std::string& name) { return !seen.insert(name).second; });
    for (Node* node : new_nodes_) {
      for (const auto& [key, value] : kept) SetMetadata(node->metadata, key, value);
      NoteModules({match_.nodes.begin(), match_.nodes.end()}, *node);
      SetMetadata(node->metadata, kRuleKey, rule_.name);
      SetMetadata(node->metadata, kFromKey, absl::StrJoin(from, ","));
    }
    if (!new_nodes_.empty() && new_nodes_.back()->name.empty())
      new_nodes_.back()->name = last_->name;
    if (!new_nodes_.empty()) new_nodes_.back()->doc_string = last_->doc_string;
  }

  void MoveReaders() {
    for (Node* node : new_nodes_) scope_.index->Add(node, last_position_);
    for (size_t i = 0; i < old_outputs_.size(); ++i) {
      Value* from = old_outputs_[i];
      Value* to = new_outputs_[i];
      if (to == nullptr || to == from) continue;
      if (!CanReplaceWholly(*from, *to)) {
        Value* copy = NewValue(from->name());
        copy->set_dtype(from->dtype());
        copy->set_shape(from->shape());
        Node* identity = scope_.graph->AddNode("", "Identity", {to}, {copy}, last_);
        scope_.index->Add(identity, last_position_);
        to = copy;
      }
      const std::string name = from->name();
      scope_.graph->ReplaceAllUses(from, to);
      names_.emplace_back(to, name);
    }
  }

  void EraseMatch() {
    for (auto it = match_.nodes.rbegin(); it != match_.nodes.rend(); ++it) {
      if (!scope_.index->alive(*it)) continue;
      for (const Node* erased : EraseDead(*it, *scope_.contents)) scope_.index->Remove(erased);
    }
    // Values keep their names where the old ones are gone.
    for (auto& [value, name] : names_) {
      if (value->name() != name && !value->is_input() && !value->is_output() &&
          scope_.graph->FindValue(name) == nullptr) {
        scope_.graph->Rename(value, name);
      }
    }
  }

  absl::Status Sort() {
    const absl::Status status = scope_.graph->SortTopologically();
    if (!status.ok()) return absl::InternalError(status.message());
    scope_.index->Rebuild(*scope_.graph);
    return absl::OkStatus();
  }

  const Rule::Impl& rule_;
  const Pattern& pattern_;
  const RuleReplacement& replacement_;
  const Match& match_;
  const RewriteScope& scope_;
  Node* last_;
  int64_t last_position_;
  bool needs_sort_ = false;
  std::vector<Value*> old_outputs_;
  std::vector<Value*> new_outputs_;
  std::vector<Node*> new_nodes_;
  std::vector<Value*> new_constants_;
  std::vector<std::pair<Value*, std::string>> names_;
};

}  // namespace

absl::Status ReplaceMatch(const Rule::Impl& rule, int pattern, const Match& match,
                          const RewriteScope& scope) {
  return Rewrite(rule, pattern, match, scope).Run();
}

}  // namespace pagefuse
