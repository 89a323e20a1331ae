// SPDX-License-Identifier: Apache-2.0
// Reads the forms in which graphs hold cosines and sines, and makes of each the table that the ops
// take. It is private to the fusions by test vectors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

namespace pagefuse {

// One way to hold cosines and sines of the positions of tokens.
struct CosSinTable {
  std::vector<FusionPort> ports;
  std::string formal;   // the ports, as a text names them
  std::string prelude;  // defines `table` and `places`, a row of it for each token
  bool indexed = true;  // by positions, below the table's first dim
};
// Of one table [P, R], of two [P, R/2], and of rows that were taken from either before.
const std::vector<CosSinTable>& CosSinTables();
// The width R of the bound table; nullopt where its parts do not fit.
std::optional<int64_t> TableWidth(const BoundPorts& ports);
void SetTableLimit(const CosSinTable& form, const BoundPorts& ports, Draft& draft);
// The form's prelude for a table of that width.
std::string TablePrelude(const CosSinTable& form, int64_t width);

}  // namespace pagefuse
