// SPDX-License-Identifier: Apache-2.0
// Rows of earlier tokens and the new ones behind them, as a tensor of any layout holds them: with
// axes in another order, as a part of one tensor of keys and values, or in another float type.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

// An element behind the nodes that move it and the casts between them, with the types on the way:
// that of the value first, that of the element last.
struct TracedElement {
  Element element;
  std::vector<DataType> types;
};
TracedElement TraceElement(IndexingAnalysis& reader, Element element);

// What an element that runs over rows with `token` is: rows of a past, and behind them new ones. It
// lies where a Concat joins them, or Attention gives them as its present. Neither is followed further.
struct JoinedRows {
  Node* join = nullptr;
  Element past, fresh;
  IndexSymbolPtr past_token, fresh_token;  // over the rows of either
};
// Nullopt if the element is not that, or if `token` does not run over all the rows; so with the axes
// that are said to run over either part.
std::optional<JoinedRows> JoinedAlong(IndexingAnalysis& reader, const Element& rows,
                                      const IndexSymbolPtr& token,
                                      IndexSymbolPtr past_token = nullptr,
                                      IndexSymbolPtr fresh_token = nullptr);

}  // namespace pagefuse
