// SPDX-License-Identifier: Apache-2.0
// join-sizes: gives one name to sizes of inputs that are the same in every run.
//
//   a [B, H, S, past_a + S], b [B, H, past_b + S, D] of inputs of past_a and of past_b rows
//   y = MatMul (a, b)
//     =>  both inputs have past_a rows
//
// Exporters give each past a length of its own where nothing in their trace says that two are equal.
// A product does: it takes no factors whose inner sizes differ, so that no run has any such pasts.
// Only what every run comes to says so: nodes that outputs come from, outside of branches and loops.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "join-sizes";

using ports::Attention;

// Two sizes that a node takes only if they are equal, the difference of both; unknown if it says
// of none.
Dim DifferenceOfEqual(const Node& node) {
  const bool product = node.Is("MatMul");
  if (!product && !node.Is("Attention")) return Dim::Unknown();
  const Shape* a = ShapeOf(node.input(product ? 0 : static_cast<int>(Attention::kKey)));
  const Shape* b = ShapeOf(node.input(product ? 1 : static_cast<int>(Attention::kValue)));
  if (!a || !b || a->rank() < 2 || b->rank() < 2) return Dim::Unknown();
  return a->back(product ? 0 : 1) - b->back(1);
}

class SizeJoiner {
 public:
  explicit SizeJoiner(Graph& graph) : graph_(graph) {
    for (const Value* input : graph.inputs()) {
      if (const Shape* shape = ShapeOf(input)) AddNames(*shape);
    }
  }

  // The sizes that go, by name, and what they are called then.
  std::map<std::string, Dim> Find() const {
    std::map<std::string, Dim> joined;
    absl::flat_hash_set<const Node*> dead;
    const std::vector<Node*> nodes = NodesOf(graph_);
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      const Node* node = *it;
      const bool read = std::ranges::any_of(node->outputs(), [&](const Value* output) {
        const auto is_alive = [&](const Use& use) { return !dead.contains(use.node); };
        return output && (output->is_output() || std::ranges::any_of(output->uses(), is_alive));
      });
      if (!read) dead.insert(node);
      if (!read) continue;
      const auto pair = NamesIn(DifferenceOfEqual(*node).Substitute(joined));
      if (!pair) continue;
      const std::map<std::string, Dim> step = {{pair->second, Dim::Symbol(pair->first)}};
      for (auto& [name, dim] : joined) dim = dim.Substitute(step);
      joined.insert(*step.begin());
    }
    return joined;
  }

 private:
  void AddNames(const Shape& shape) {
    for (const Dim& dim : shape.dims()) {
      if (const auto name = dim.symbol()) order_.try_emplace(*name, order_.size());
    }
  }

  // Of two sizes of inputs with this difference, 0: the one that inputs name first, and the other.
  std::optional<std::pair<std::string, std::string>> NamesIn(const Dim& difference) const {
    if (!difference.known() || difference.offset() != 0 || difference.terms().size() != 2) {
      return std::nullopt;
    }
    const auto& [a, a_count] = difference.terms()[0];
    const auto& [b, b_count] = difference.terms()[1];
    const auto first = order_.find(a), second = order_.find(b);
    if (a_count + b_count != 0 || first == order_.end() || second == order_.end()) {
      return std::nullopt;
    }
    return first->second < second->second ? std::pair(a, b) : std::pair(b, a);
  }

  Graph& graph_;
  std::map<std::string, size_t> order_;  // of the sizes that inputs have, as they name them
};

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  const std::map<std::string, Dim> joined = SizeJoiner(graph).Find();
  if (joined.empty()) return false;
  RenameSizes(graph, joined);
  for (auto& [value, dims] : context.contents) {
    for (Dim& dim : dims) dim = dim.Substitute(joined);
  }
  PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  return true;
}

}  // namespace

void RenameSizes(Graph& graph, const std::map<std::string, Dim>& names) {
  for (Value* value : graph.values()) {
    if (value->shape()) value->set_shape(value->shape()->Substitute(names));
  }
}

std::unique_ptr<Pass> JoinSizes() {
  return MakePass(kName,
                  "Gives one name to sizes of inputs that products and attention take only if they "
                  "are equal.",
                  Run);
}

}  // namespace pagefuse
