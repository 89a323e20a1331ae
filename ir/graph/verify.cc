// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/verify.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

std::string InputPlace(const Node& node, int index) {
  const Value* value = node.input(index);
  return StrCat(node.Description(), ": input ", index, " \"", value->name(), "\"");
}

std::string ValuePlace(const Value& value) { return StrCat("value \"", value.name(), "\""); }

// Checks one graph and its subgraphs.
class GraphVerifier {
 public:
  absl::Status Run(const Graph& graph) {
    PF_RETURN_IF_ERROR(CheckGraph(graph));
    return CheckUses();
  }

 private:
  absl::Status CheckGraph(const Graph& graph) {
    graphs_.insert(&graph);
    values_.push_back(graph.values());
    // By place: graphs within this one add theirs.
    const size_t place = values_.size() - 1;
    seen_.reserve(seen_.size() + values_[place].size());
    absl::flat_hash_set<const Value*> inputs;
    for (const Value* value : graph.inputs()) {
      if (!inputs.insert(value).second || !value->is_input()) {
        return Invalid(ValuePlace(*value), ": is not once in the list of graph inputs");
      }
    }
    for (const Value* value : values_[place]) {
      if (value->is_input() && !inputs.contains(value)) {
        return Invalid(ValuePlace(*value), ": is not once in the list of graph inputs");
      }
      PF_RETURN_IF_ERROR(CheckValue(graph, *value));
    }
    for (const auto& node : graph.nodes()) PF_RETURN_IF_ERROR(CheckNode(graph, *node));
    for (const Value* value : graph.outputs()) {
      if (value->graph() != &graph || graph.FindValue(value->name()) != value) {
        return Invalid("graph \"", graph.name, "\": output \"", value->name(),
                       "\" is of another graph");
      }
      if (!IsDefined(*value)) {
        return Invalid("graph \"", graph.name, "\": output \"", value->name(),
                       "\": expected a value that a node computes, an input or an initialiser, "
                       "got an unknown name");
      }
    }
    return absl::OkStatus();
  }

  static bool IsDefined(const Value& value) {
    return value.producer() != nullptr || value.is_input() || value.initializer() != nullptr;
  }

  static absl::Status CheckValue(const Graph& graph, const Value& value) {
    if (value.name().empty()) return Invalid("graph \"", graph.name, "\": a value has no name");
    if (value.graph() != &graph || graph.FindValue(value.name()) != &value) {
      return Invalid(ValuePlace(value), ": is not registered in its graph");
    }
    if (const Node* node = value.producer()) {
      if (node->graph() != &graph || node->output(value.producer_index()) != &value) {
        return Invalid(ValuePlace(value), ": its producer does not list it as output");
      }
      if (value.is_input() || value.initializer() != nullptr) {
        return Invalid(ValuePlace(value), ": ", node->Description(), " computes it, and it is ",
                       value.is_input() ? "a graph input" : "an initialiser", " too");
      }
    }
    if (value.shape() && !WithinMaxElements(*value.shape())) {
      return Invalid(ValuePlace(value), ": expected dims of a tensor that fits in memory, got ",
                     value.shape()->ToString());
    }
    return value.initializer() == nullptr ? absl::OkStatus() : VerifyInitializer(value);
  }

  absl::Status CheckNode(const Graph& graph, const Node& node) {
    if (node.graph() != &graph) return Invalid(node.Description(), ": belongs to another graph");
    if (node.op_type().empty()) return Invalid(node.Description(), ": has no operator type");
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (node.input(i) != nullptr) PF_RETURN_IF_ERROR(CheckInput(graph, node, i));
    }
    for (const Graph* subgraph : node.Subgraphs()) {
      if (subgraph == nullptr || subgraph->parent() != &graph) {
        return Invalid(node.Description(), ": a subgraph does not name the graph around it");
      }
      PF_RETURN_IF_ERROR(CheckGraph(*subgraph));
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value* value = node.output(i);
      if (value == nullptr) continue;
      if (value->producer() != &node || value->producer_index() != i) {
        return Invalid(node.Description(), ": output ", i, " \"", value->name(),
                       "\" has another producer");
      }
      seen_[value].computed = true;
    }
    return absl::OkStatus();
  }

  absl::Status CheckInput(const Graph& graph, const Node& node, int index) {
    const Value* value = node.input(index);
    Seen& seen = seen_[value];
    seen.reads.push_back({const_cast<Node*>(&node), index});
    if (!IsDefined(*value)) {
      return Invalid(InputPlace(node, index),
                     ": expected a value that a node computes, an input or an initialiser, "
                     "got an unknown name");
    }
    // What is in the graph itself is seen under its name: CheckValue found it registered.
    const bool own = value->graph() == &graph;
    const Value* visible = own ? value : graph.FindValueInScope(value->name());
    if (visible != value) {
      return Invalid(InputPlace(node, index),
                     visible == nullptr ? ": is a value of a graph that is not around it"
                                        : ": is hidden by a value of that name nearer by");
    }
    // Only values of the graphs checked here: what encloses them was checked, or is not ours to
    // check.
    const bool ours = graphs_.contains(value->graph());
    if (ours && value->producer() != nullptr && !seen.computed) {
      return Invalid(InputPlace(node, index), ": is read before ", value->producer()->Description(),
                     " computes it");
    }
    return absl::OkStatus();
  }

  using Uses = absl::InlinedVector<Use, 2>;

  // Own values can be read in these graphs only, so what was seen must be all.
  absl::Status CheckUses() const {
    static const auto* none = new Uses;
    for (const std::vector<Value*>& values : values_) {
      for (const Value* value : values) {
        const auto found = seen_.find(value);
        const Uses& seen = found == seen_.end() ? *none : found->second.reads;
        if (!SameUses(seen, value->uses())) {
          return Invalid(ValuePlace(*value), ": expected a list of ", seen.size(),
                         " uses, got another one of ", value->uses().size());
        }
      }
    }
    return absl::OkStatus();
  }

  // In any order.
  static bool SameUses(const Uses& seen, const std::vector<Use>& listed) {
    if (seen.size() != listed.size()) return false;
    if (std::equal(seen.begin(), seen.end(), listed.begin())) return true;
    const auto less = [](const Use& a, const Use& b) {
      return std::pair(a.node, a.index) < std::pair(b.node, b.index);
    };
    std::vector<Use> a(seen.begin(), seen.end()), b = listed;
    std::ranges::sort(a, less);
    std::ranges::sort(b, less);
    return a == b;
  }

  struct Seen {
    bool computed = false;  // by a node that was checked
    Uses reads;
  };

  absl::flat_hash_set<const Graph*> graphs_;
  std::vector<std::vector<Value*>> values_;  // of each graph
  absl::flat_hash_map<const Value*, Seen> seen_;
};

std::string_view Canonical(std::string_view domain) { return domain == "ai.onnx" ? "" : domain; }

using FunctionKey = std::tuple<std::string, std::string, std::string>;

FunctionKey KeyOf(const Function& function) {
  return {std::string(Canonical(function.domain)), function.name, function.overload};
}

std::string FunctionPlace(const Function& function) {
  return StrCat("function \"", function.domain, ".", function.name,
                function.overload.empty() ? "" : ":", function.overload, "\"");
}

// Calls `visit` for each node of the graph and its subgraphs.
template <typename Visitor>
absl::Status ForEachNode(const Graph& graph, const Visitor& visit) {
  for (const auto& node : graph.nodes()) {
    PF_RETURN_IF_ERROR(visit(*node));
    for (const Graph* subgraph : node->Subgraphs())
      PF_RETURN_IF_ERROR(ForEachNode(*subgraph, visit));
  }
  return absl::OkStatus();
}

absl::Status CheckDomains(const Graph& graph, const std::map<std::string, int64_t>& imports) {
  absl::flat_hash_set<std::string> imported;
  for (const auto& [domain, version] : imports) imported.emplace(Canonical(domain));
  return ForEachNode(graph, [&imported](const Node& node) {
    if (imported.contains(node.domain())) return absl::OkStatus();
    return Invalid(node.Description(), ": domain \"", node.domain(),
                   "\" is not among the opset imports");
  });
}

// Functions in an order in which each is called only by earlier ones; what cannot be placed is in a
// circle, or called from one.
absl::Status CheckCalls(const Model& model) {
  absl::flat_hash_map<FunctionKey, size_t> index;
  for (size_t i = 0; i < model.functions.size(); ++i) {
    if (!index.emplace(KeyOf(model.functions[i]), i).second) {
      return Invalid(FunctionPlace(model.functions[i]), ": is defined twice");
    }
  }
  std::vector<absl::flat_hash_set<size_t>> callees(model.functions.size());
  std::vector<int> callers(model.functions.size(), 0);
  for (size_t i = 0; i < model.functions.size(); ++i) {
    PF_RETURN_IF_ERROR(ForEachNode(*model.functions[i].body, [&](const Node& node) {
      const auto found = index.find(FunctionKey(node.domain(), node.op_type(), node.overload));
      if (found != index.end() && callees[i].insert(found->second).second) ++callers[found->second];
      return absl::OkStatus();
    }));
  }
  std::vector<size_t> free;
  for (size_t i = 0; i < callers.size(); ++i) {
    if (callers[i] == 0) free.push_back(i);
  }
  size_t placed = 0;
  while (!free.empty()) {
    const size_t function = free.back();
    free.pop_back();
    ++placed;
    for (const size_t callee : callees[function]) {
      if (--callers[callee] == 0) free.push_back(callee);
    }
  }
  if (placed == callers.size()) return absl::OkStatus();
  const size_t stuck = std::ranges::find_if(callers, [](int n) { return n > 0; }) - callers.begin();
  return Invalid(FunctionPlace(model.functions[stuck]), ": functions call each other in a circle");
}

}  // namespace

absl::Status VerifyInitializer(const Value& value) {
  const Tensor& tensor = *value.initializer();
  if (!tensor.defined()) return Invalid("initialiser \"", value.name(), "\": has no data");
  if (tensor.dtype() != value.dtype()) {
    return Invalid("initialiser \"", value.name(), "\": expected type ",
                   DataTypeName(value.dtype()), ", got ", DataTypeName(tensor.dtype()));
  }
  if (!value.shape()) return absl::OkStatus();
  const Shape& shape = *value.shape();
  bool fits = shape.rank() == tensor.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) {
    fits = !shape[i].is_constant() || *shape[i].constant() == tensor.dims()[i];
  }
  if (fits) return absl::OkStatus();
  return Invalid("initialiser \"", value.name(), "\": expected shape ", shape.ToString(), ", got ",
                 DimsToString(tensor.dims()));
}

absl::Status Verify(const Graph& graph) { return GraphVerifier().Run(graph); }

absl::Status Verify(const Model& model) {
  if (model.graph == nullptr) return Invalid("the model has no graph");
  PF_RETURN_IF_ERROR(Verify(*model.graph));
  PF_RETURN_IF_ERROR(CheckDomains(*model.graph, model.opset_imports));
  for (const Function& function : model.functions) {
    if (function.name.empty()) return Invalid("a function has no name");
    if (function.body == nullptr) return Invalid(FunctionPlace(function), ": has no body");
    const std::string place = FunctionPlace(function);
    PF_RETURN_IF_ERROR(AtPlace(place, Verify(*function.body)));
    PF_RETURN_IF_ERROR(AtPlace(place, CheckDomains(*function.body, function.opset_imports)));
  }
  return CheckCalls(model);
}

}  // namespace pagefuse
