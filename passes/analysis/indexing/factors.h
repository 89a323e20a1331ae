// SPDX-License-Identifier: Apache-2.0
// Splits a product of elements into its factors, so that scales may stand anywhere among them.
#pragma once

#include <vector>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

struct Factors {
  double number = 1;
  std::vector<Element> others;  // no products, casts of floats or quantised numbers themselves
};

// Whether a cast keeps every number of the type that it casts from.
bool KeepsNumbers(const Node& cast);

enum class Casts { kFollow, kKeep };

// The factors of an element: of Mul, Div by a number, DequantizeLinear without zero point, Neg.
// Casts to a float type that round nothing are followed unless told otherwise.
Factors FactorsOf(IndexingAnalysis& reader, const Element& element, Casts casts = Casts::kFollow);

// A sum over one axis of products: MatMul, or Einsum of two factors.
struct SummedProduct {
  Element left;
  Element right;
  IndexSymbolPtr summed;
};
std::optional<SummedProduct> ProductOf(IndexingAnalysis& reader, const Element& element);

}  // namespace pagefuse
