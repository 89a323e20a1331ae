// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/simplify/peephole.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/function_pass.h"

namespace pagefuse {
namespace {

class PeepholeRules {
 public:
  explicit PeepholeRules(std::vector<PeepholeRule> rules) : rules_(std::move(rules)) {
    for (const PeepholeRule& rule : rules_) {
      for (absl::string_view type : absl::StrSplit(AbslView(rule.op_types), ' ')) {
        by_type_[std::string(type)].push_back(&rule);
      }
    }
  }
  PeepholeRules(const PeepholeRules&) = delete;

  // A rewrite may enable others before it in the list, but each round settles all chains that run
  // forward.
  absl::StatusOr<bool> Run(std::string_view name, Model& model, PassContext& context,
                           const GraphScope& scope) const {
    constexpr int kMaxRounds = 32;
    for (int round = 0; round < kMaxRounds; ++round) {
      PF_ASSIGN_OR_RETURN(const bool changed, Round(model, context, scope));
      if (!changed) return round > 0;
    }
    return absl::InternalError(StrCat("\"", name, "\" does not come to rest"));
  }

 private:
  absl::StatusOr<bool> Round(Model& model, PassContext& context, const GraphScope& scope) const {
    Peephole peephole(scope, context.contents);
    absl::flat_hash_set<const Node*> erased;
    bool changed = false;
    for (Node* node : NodesOf(*scope.graph)) {
      if (erased.contains(node) || !node->domain().empty() || HasAttributeRef(*node)) continue;
      const auto rules = by_type_.find(node->op_type());
      if (rules == by_type_.end()) continue;
      for (const PeepholeRule* rule : rules->second) {
        if (!rule->run(*node, peephole)) continue;
        changed = true;
        const std::vector<const Node*> dead = EraseDead(node, context.contents);
        erased.insert(dead.begin(), dead.end());
        PF_RETURN_IF_ERROR(context.Rewrote(model, rule->name));
        if (!dead.empty()) break;
      }
    }
    return changed;
  }

  std::vector<PeepholeRule> rules_;
  absl::flat_hash_map<std::string, std::vector<const PeepholeRule*>> by_type_;
};

}  // namespace

bool Peephole::Replace(Node& node, Value* to) { return ReplaceValue(graph_, node.output(0), to); }

Value* Peephole::AddNode(Node& before, std::string_view op_type, std::vector<Value*> inputs,
                         const Attributes& attributes) {
  std::string base = before.output(0) == nullptr ? std::string("value") : before.output(0)->name();
  Value* output = graph_.AddValue(graph_.UniqueName(base));
  Node* node = graph_.AddNode("", op_type, std::move(inputs), {output}, &before);
  node->metadata = before.metadata;
  attributes.SetOn(*node);
  // Inference only adds knowledge here; a node that it refuses is refused again, with its name,
  // when the graph is inferred.
  (void)InferNode(*node, opsets_, contents_);
  return output;
}

bool Peephole::ReplaceByNode(Node& node, std::string_view op_type, std::vector<Value*> inputs,
                             const Attributes& attributes) {
  Value* old = node.output(0);
  if (old->uses().empty() && !old->is_output()) return false;
  Value* value = AddNode(node, op_type, std::move(inputs), attributes);
  value->producer()->name = node.name;
  value->producer()->doc_string = node.doc_string;
  if (old->dtype() != DataType::kUndefined) value->set_dtype(old->dtype());
  if (old->shape().has_value()) value->set_shape(old->shape());
  const auto known = contents_.find(old);
  if (known != contents_.end()) {
    const std::vector<Dim> dims = known->second;
    contents_[value] = dims;
  }
  graph_.ReplaceAllUses(old, value);
  return true;
}

std::unique_ptr<Pass> MakePeepholePass(std::string_view name, std::string_view description,
                                       std::vector<PeepholeRule> rules) {
  std::vector<RuleSummary> summaries;
  for (const PeepholeRule& rule : rules) summaries.push_back({std::string(rule.name), ""});
  const auto shared = std::make_shared<const PeepholeRules>(std::move(rules));
  const auto run = [shared, name = std::string(name)](Model& model, PassContext& context,
                                                      const GraphScope& scope) {
    return shared->Run(name, model, context, scope);
  };
  return MakeGraphPass(name, description, run, std::move(summaries));
}

bool SameShapes(const Value* a, const Value* b) {
  return ShapeOf(a) != nullptr && ShapeOf(b) != nullptr && ProvablyEqual(*ShapeOf(a), *ShapeOf(b));
}

std::optional<double> FilledNumberOf(const Value* value) {
  const Node* filled = ProducerIf(value, "ConstantOfShape");
  if (!filled) return std::nullopt;
  const Attribute* attribute = filled->attribute("value");
  if (!attribute) return 0;
  const auto tensor = ConstantNodeValue(*attribute, "value");
  return tensor ? ScalarNumber(*tensor) : std::nullopt;
}

std::vector<Value*> CountInputs(Node& before, Peephole& peephole, Value* length, Value* axes) {
  Value* count = peephole.AddNode(before, "Squeeze", {length, axes});
  const auto number = [&](int64_t value) {
    return peephole.Constant("place", Tensor::Scalar<int64_t>(value));
  };
  return {number(0), count, number(1)};
}

std::optional<double> ScalarOf(const Value* value) {
  const Tensor* tensor = ConstantOf(value);
  return tensor && tensor->rank() == 0 ? ScalarNumber(*tensor) : std::nullopt;
}

}  // namespace pagefuse
