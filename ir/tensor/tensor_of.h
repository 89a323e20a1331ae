// SPDX-License-Identifier: Apache-2.0
// Tensors of values whose number a file, an option or a caller tells: there may be no memory for them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// As Tensor::Of, against the budget of the thread: ResourceExhausted as Buffer::Allocate, and
// InvalidArgument if there are not as many values as the dims say.
template <typename T>
absl::StatusOr<Tensor> TensorOf(std::vector<int64_t> dims, const std::vector<T>& values);

}  // namespace pagefuse
