// SPDX-License-Identifier: Apache-2.0
// Shape inference that elementwise ops share.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

// Output 0 has the first input's shape, and `dtype` or, if undefined, the first input's type.
absl::Status InferSameShape(ShapeContext& context, DataType dtype = DataType::kUndefined);

// Output 0 has the broadcast shape of all inputs, and `dtype` or, if undefined, the first input's
// type.
absl::Status InferBroadcast(ShapeContext& context, DataType dtype = DataType::kUndefined);

// Runs `row` over output 0 and the broadcast inputs 0 and 1. Unimplemented, naming the type, if it
// is null.
absl::Status RunBinaryRows(const KernelArgs& args, BinaryRowFn row);

}  // namespace pagefuse::onnx_ops
