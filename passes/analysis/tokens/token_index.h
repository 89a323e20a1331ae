// Evaluates the index arithmetic of a decoder node by node: counts, positions, masks of ones.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/indexing/index_expression.h"

namespace pagefuse {

// The output of `node` as an affine function of its own indices, if its inputs are such functions
// (null: omitted, or of no known form) and the op keeps them so. Comparisons and choices are
// understood where they come out the same for all indices: `mask == 0` of a mask of ones is false.
std::optional<IndexExpression> IndexOfNode(const Node& node,
                                           const std::vector<const IndexExpression*>& inputs,
                                           const SymbolicContents& contents);

// `value` as such a function, where `mask` [B, T] is all ones. Nullopt where it is computed in
// another way, or by too long a chain.
std::optional<IndexExpression> IndexOfMask(const Value* value, const Value* mask,
                                           const SymbolicContents& contents);

}  // namespace pagefuse
