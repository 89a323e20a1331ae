// SPDX-License-Identifier: Apache-2.0
// Tensors whose data was left out: of a printed graph that is read back, of a model without its file of weights. Type and
// dims are known, the bytes are not; who reads them anyway gets zeros.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// Takes address space, but no memory. ResourceExhausted if there is none; InvalidArgument for
// strings.
absl::StatusOr<Tensor> AbsentTensor(DataType type, std::vector<int64_t> dims);

// True for a tensor of AbsentTensor and its views.
bool IsAbsent(const Tensor& tensor);

}  // namespace pagefuse
