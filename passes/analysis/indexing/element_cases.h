// SPDX-License-Identifier: Apache-2.0
// Elements that are one of a few numbers, each under conditions: what masks are made of, however they
// are computed.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

struct NumberCase {
  Conditions where;
  double number = 0;
};

// The numbers that an element is, of arithmetic on numbers and on what is 0 or 1; nullopt if it may be
// others, or too many. One of the cases holds wherever it is looked at. `inputs`: as in IsZeroOrOne.
std::optional<std::vector<NumberCase>> ReadCases(IndexingAnalysis& reader, const Element& element,
                                                 bool inputs);
// As ReadCases, of a comparison or a cast to bool itself.
std::optional<std::vector<NumberCase>> ReadTruthCases(IndexingAnalysis& reader,
                                                      const Element& element, bool inputs);

// Where the number is one of those that are asked for.
Conditions WhereOneOf(const std::vector<NumberCase>& cases,
                      const std::function<bool(double)>& asked);

}  // namespace pagefuse
