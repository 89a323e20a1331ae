// SPDX-License-Identifier: Apache-2.0
// Compares rows of logits of two forms of one decoder.
#pragma once

#include <optional>
#include <string>

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {

// What a row may be off by. NaN equals NaN, and infinities themselves.
struct RowTolerance {
  // Of each logit, relative to the largest of the row; then the largest logits are of the same
  // token too, where the second lies further below. 0: not asked for.
  double largest = 0;
  // L2 of the difference of all rows relative to that of the rows less their means. 0: not asked for.
  double l2 = 0;
};

// Of a model that computes in these types; types must be inferred.
RowTolerance ComputedTolerance(const Model& model);
// Four times the documented errors of the formats in which the options store weights and caches
// (docs/trust.md); nullopt where they store all as it is.
std::optional<RowTolerance> StoredTolerance(const EngineOptions& options);
// The options without those formats.
EngineOptions StoredAsItIs(const EngineOptions& options);

// Infinite where the rows are not of the same sizes, or one has a number where the other has none.
double SquaredDistance(const LogitRows& a, const LogitRows& b);

// Empty where all rows are equal, else the first difference: `behind 2 more tokens: logit 17:
// expected 0.5, got 0.7`.
std::string RowsDifference(const LogitRows& expected, const LogitRows& got,
                           const RowTolerance& tolerance);

}  // namespace pagefuse
