// Constant tensors of integers as index forms: counted, in steps, or their quotients and remainders.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/ir/graph.h"
#include "pagefuse/passes/words/index_form.h"

namespace pagefuse {

// tensor[at...]; nullopt if it is no such form.
std::optional<IndexForm> ReadConstantTensor(const Tensor& tensor, const std::vector<IndexForm>& at);

}  // namespace pagefuse
