// SPDX-License-Identifier: Apache-2.0
// Reads codes of a few bits that are packed in bytes, one after the other, the lowest bits first.
#pragma once

#include <optional>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

struct PackedCodes {
  Element byte;     // one of a group's bytes
  IndexExpr first;  // the address of the first byte of all
  int bits = 0;
};

// What the integer `code`, read along an axis, unpacks: 3 or 4 bits of bytes that follow each other,
// in whatever arithmetic. Compared on bytes.
std::optional<PackedCodes> PackedCodesOf(IndexingAnalysis& reader, const IndexExpr& code,
                                         const IndexSymbolPtr& along);

}  // namespace pagefuse
