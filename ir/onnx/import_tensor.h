// SPDX-License-Identifier: Apache-2.0
// Imports TensorProto and SparseTensorProto as Tensor.
#pragma once

#include "absl/status/statusor.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/onnx/external_data.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// Takes dims, type and data out of `proto` and leaves its other fields. Allocates no more than the
// data that is there: claimed sizes are compared with it first.
absl::StatusOr<Tensor> TakeTensor(onnx::TensorProto& proto, ExternalData& external);

// The dense tensor. Indices are checked as the ONNX specification says: sorted, without duplicates,
// inside dims.
absl::StatusOr<Tensor> ImportSparse(onnx::SparseTensorProto proto, ExternalData& external);

}  // namespace pagefuse
