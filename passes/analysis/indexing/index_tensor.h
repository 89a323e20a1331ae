// SPDX-License-Identifier: Apache-2.0
// Builds the nodes that compute an index form as a tensor.
#pragma once

#include "pagefuse/passes/analysis/indexing/layout.h"

namespace pagefuse {

// int64 values of `form` along `axis`, a vector. FailedPrecondition if it depends on other axes.
absl::StatusOr<Value*> IndexVector(GraphBuilder& builder, Layout& layout, const IndexExpr& form,
                                   const IndexSymbolPtr& axis);

}  // namespace pagefuse
