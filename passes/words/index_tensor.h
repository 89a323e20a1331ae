// Index forms as tensors of a graph.
#pragma once

#include "pagefuse/passes/words/arrange.h"

namespace pagefuse {

// int64 values of `form` along `axis`, a vector. FailedPrecondition if it depends on other axes.
absl::StatusOr<Value*> IndexVector(GraphBuilder& builder, Arranger& arranger, const IndexForm& form,
                                   const AtomPtr& axis);

}  // namespace pagefuse
