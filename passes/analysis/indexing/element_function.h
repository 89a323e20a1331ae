// SPDX-License-Identifier: Apache-2.0
// Compares numbers that are computed from bytes by evaluating them at points, whatever arithmetic
// computes them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// A product of elements as a function of the bytes that it is computed from.
class ElementFunction {
 public:
  // FailedPrecondition if something else than elementwise ops, constants and bytes is in it.
  static absl::StatusOr<ElementFunction> Of(IndexingAnalysis& reader,
                                            const std::vector<Element>& factors,
                                            const OpsetImports& opsets);

  // The bytes, in the order of their addresses.
  const std::vector<Element>& bytes() const { return bytes_; }
  // Its values where byte i has the values points[i], as floats.
  absl::StatusOr<std::vector<float>> At(const std::vector<std::vector<uint8_t>>& points) const;

 private:
  Model model_;
  std::vector<Element> bytes_;
  std::vector<std::string> inputs_;
};

// True if it is the float16 of two bytes, the lower first; the address of the lower in `first`.
bool IsFloat16(IndexingAnalysis& reader, const std::vector<Element>& factors,
               const OpsetImports& opsets, Element& first);

// True if it is 2^(byte - 127) of a byte that is no NaN.
bool IsE8m0(IndexingAnalysis& reader, const Element& factor, const OpsetImports& opsets,
            Element& byte);

}  // namespace pagefuse
