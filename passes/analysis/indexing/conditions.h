// SPDX-License-Identifier: Apache-2.0
// Conjunctions of inequalities, joined and negated.
#pragma once

#include <optional>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

// Where one fails.
IndexExpr Negated(const IndexExpr& condition);
// Where one of them fails.
Conditions NegationOf(const Conditions& conditions);
// All of both lists. Of alternatives those are left out that others deny.
Conditions Both(const Conditions& a, const Conditions& b);
// As Both; nullopt if one list denies a condition of the other.
std::optional<Conditions> BothIfPossible(const Conditions& a, const Conditions& b);
// All of one list hold, or all of the other.
Conditions Either(const Conditions& a, const Conditions& b);

}  // namespace pagefuse
