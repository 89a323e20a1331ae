// SPDX-License-Identifier: Apache-2.0
// Finds the constants of a subgraph that may be attributes of the op that it computes. It is
// private to the fusions by test vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pagefuse/passes/analysis/functions/computed_region.h"

namespace pagefuse {

template <typename T>
void AddOnce(T number, std::vector<T>& numbers) {
  if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
}

// Numbers of one element that products and quotients of what derives from `port` take; of a
// divisor, the reciprocal.
std::vector<float> FactorsOn(const ComputedRegion& region, const Value* port);
// Small floats that may be an epsilon, attributes of norms among them.
std::vector<float> Epsilons(const ComputedRegion& region);
// Integers of one element that quotients and remainders take, and 1.
std::vector<int64_t> Divisors(const std::vector<Node*>& nodes);
// Integers of one element that the nodes read, without their sign, the first of constants that
// count up from below 0, and 0; each once.
std::vector<int64_t> IntegersOf(const std::vector<Node*>& nodes);

// Floats of one element between 1/2 and 10^4 that the nodes read, without their sign, each once and no
// more than a few: results may be another function beyond them.
std::vector<float> BoundsOf(const std::vector<Node*>& nodes);

}  // namespace pagefuse
