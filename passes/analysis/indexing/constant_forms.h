// SPDX-License-Identifier: Apache-2.0
// Reads constant integer tensors as index forms: ranges, strided ranges, and their quotients and
// remainders.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/analysis/indexing/index_expr.h"

namespace pagefuse {

// tensor[at...]; nullopt if it is no such form.
std::optional<IndexExpr> ReadConstantTensor(const Tensor& tensor, const std::vector<IndexExpr>& at);

// The number as a cast to the type makes it; nullopt if that depends on who computes it.
std::optional<double> AsType(double number, DataType type);

}  // namespace pagefuse
