// SPDX-License-Identifier: Apache-2.0
// Ways to write a graph otherwise: the same function in another form, or another function by
// one step. What passes recognise by meaning must survive the first and refuse the second.
#pragma once

#include <random>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::testing {

using Random = std::mt19937;

// Rewrites one node, if it is of the kind that the mutation is for. Types and shapes of its values
// are known. True if it did.
using RewriteNode = bool (*)(Node& node, Random& random);

struct Mutation {
  std::string_view name;
  RewriteNode rewrite;
};

// Other forms of the same function.
std::span<const Mutation> Variants();
// The same, by other ops: a sum as a product with ones, a remainder by its bits. Sums round apart.
std::span<const Mutation> Idioms();
// Another function, mostly: a node may be where it makes no difference.
std::span<const Mutation> Breakages();

// Rewrites about the given share of the nodes of the main graph that the mutation is for, at least
// one if there is any; `share` 0: exactly one. The number of nodes that were rewritten, 0 with the
// graph as it was where it is for none. An error if shapes can no longer be inferred.
absl::StatusOr<int> Mutate(Model& model, const Mutation& mutation, double share, Random& random);

}  // namespace pagefuse::testing
