// SPDX-License-Identifier: Apache-2.0
#include "graph_mutations.h"

#include <algorithm>
#include <vector>

#include "mutation_parts.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

std::vector<Mutation> Joined(std::initializer_list<std::span<const Mutation>> parts) {
  std::vector<Mutation> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

std::span<const Mutation> Variants() {
  static const auto& all =
      *new std::vector<Mutation>(Joined({ViewVariants(), ArithmeticVariants(), IndexVariants()}));
  return all;
}

std::span<const Mutation> Idioms() {
  static const auto& all = *new std::vector<Mutation>(
      Joined({SumVariants(), NumberVariants(), PlaceVariants(), WriteVariants()}));
  return all;
}

absl::StatusOr<int> Mutate(Model& model, const Mutation& mutation, double share, Random& random) {
  PF_RETURN_IF_ERROR(InferShapes(model));
  std::vector<Node*> nodes = NodesOf(*model.graph);
  std::shuffle(nodes.begin(), nodes.end(), random);
  int rewritten = 0;
  for (Node* node : nodes) {
    const bool chosen = rewritten == 0 || std::uniform_real_distribution<>()(random) < share;
    if (!chosen || !node->domain().empty()) continue;
    rewritten += mutation.rewrite(*node, random) ? 1 : 0;
    if (rewritten > 0 && share == 0) break;
  }
  PF_RETURN_IF_ERROR(InferShapes(model));
  return rewritten;
}

}  // namespace pagefuse::testing
