// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/registry/function_expansion.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using Versions = std::map<std::string, int64_t>;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t SumUpTo(int64_t a, int64_t b) { return a > kMost - b ? kMost : a + b; }

std::string NameOf(const Function& function) {
  return StrCat("function \"", function.domain.empty() ? "" : StrCat(function.domain, "."),
                function.name, "\"");
}

// Counts nodes bottom up, each body once.
class Counter {
 public:
  Counter(const Model& model, const OpRegistry& registry)
      : model_(model), registry_(registry), functions_(model.functions) {}

  absl::Status Run() {
    PF_ASSIGN_OR_RETURN(const Size size, Count(*model_.graph, model_.opset_imports, 0));
    if (size.added <= kMaxExpandedNodes) return absl::OkStatus();
    return TooManyNodes(*size.largest, size.added);
  }

 private:
  // Of a graph, or a body.
  struct Size {
    int64_t own = 0;                    // nodes that it has
    int64_t added = 0;                  // nodes that bodies add
    int height = 0;                     // calls in calls
    const Function* largest = nullptr;  // the called one that adds the most
    int64_t largest_nodes = 0;

    int64_t nodes() const { return SumUpTo(own, added); }

    void Add(const Size& inner) {
      own = SumUpTo(own, inner.own);
      added = SumUpTo(added, inner.added);
      height = std::max(height, inner.height);
      if (inner.largest_nodes <= largest_nodes) return;
      largest = inner.largest;
      largest_nodes = inner.largest_nodes;
    }
  };

  absl::StatusOr<Size> Count(const Graph& graph, const Versions& versions, int depth) {
    Size size;
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) {
        PF_ASSIGN_OR_RETURN(const Size inner, Count(*subgraph, versions, depth));
        size.Add(inner);
      }
      const Function* function = functions_.Find(*node);
      if (function == nullptr || function->body == nullptr || IsOp(*node, versions)) {
        ++size.own;
        continue;
      }
      PF_ASSIGN_OR_RETURN(const Size body, CountBody(*function, depth + 1));
      size.Add({.added = body.nodes(),
                .height = body.height + 1,
                .largest = function,
                .largest_nodes = body.nodes()});
    }
    return size;
  }

  absl::StatusOr<Size> CountBody(const Function& function, int depth) {
    if (!open_.insert(&function).second) {
      return absl::InvalidArgumentError(StrCat(NameOf(function), ": calls itself"));
    }
    auto known = sizes_.find(&function);
    if (known == sizes_.end() && depth <= kMaxCallDepth) {
      PF_ASSIGN_OR_RETURN(const Size size, Count(*function.body, function.opset_imports, depth));
      known = sizes_.emplace(&function, size).first;
    }
    open_.erase(&function);
    if (known != sizes_.end() && depth + known->second.height <= kMaxCallDepth) {
      return known->second;
    }
    return absl::ResourceExhaustedError(StrCat(
        NameOf(function), ": expected calls in calls at most ", kMaxCallDepth, " deep, got more"));
  }

  bool IsOp(const Node& node, const Versions& versions) const {
    const auto version = versions.find(node.domain());
    const int64_t opset =
        version != versions.end() ? version->second : model_.OpsetVersion(node.domain());
    return registry_.Find(node.domain(), node.op_type(), opset) != nullptr;
  }

  const Model& model_;
  const OpRegistry& registry_;
  const FunctionIndex functions_;
  absl::flat_hash_map<const Function*, Size> sizes_;
  absl::flat_hash_set<const Function*> open_;  // being counted
};

}  // namespace

absl::Status CheckExpansion(const Model& model, const OpRegistry& registry) {
  if (model.functions.empty()) return absl::OkStatus();
  return Counter(model, registry).Run();
}

absl::Status TooManyNodes(const Function& function, int64_t nodes) {
  return absl::ResourceExhaustedError(StrCat(
      NameOf(function), ": the bodies of called functions would be ",
      nodes == kMost ? "more than " : "", nodes, " nodes, expected at most ", kMaxExpandedNodes));
}

}  // namespace pagefuse
