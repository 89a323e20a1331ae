// Tensors whose data somebody left out: a printed graph that is read back, a model without its file
// of weights. Type and dims are known,
// the bytes are not; who reads them anyway gets zeros.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ir/tensor.h"

namespace pagefuse {

// Takes address space, but no memory. ResourceExhausted if there is none; InvalidArgument for
// strings.
absl::StatusOr<Tensor> AbsentTensor(DataType type, std::vector<int64_t> dims);

// True for a tensor of AbsentTensor and its views.
bool IsAbsent(const Tensor& tensor);

// FailedPrecondition naming the first value or attribute without data, and how many there are;
// OK if there is none. Subgraphs and functions are looked into.
absl::Status CheckDataPresent(const Model& model);

}  // namespace pagefuse
