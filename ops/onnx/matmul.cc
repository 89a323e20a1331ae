// SPDX-License-Identifier: Apache-2.0
// MatMul: numpy's matrix product with broadcast leading dims.
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

OpDef MatMulDef() {
  return OpDef("", "MatMul", /*since=*/1)
      .Doc(
          "Matrix product as numpy.matmul: leading dims broadcast, vectors become a row or column.")
      .Input("A", "T", "[..., M, K]")
      .Input("B", "T", "[..., K, N]")
      .Output("Y", "T", "[..., M, N]")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16, DataType::kDouble,
                   DataType::kInt32, DataType::kInt64, DataType::kUint32, DataType::kUint64})
      .InferShapes([](ShapeContext& c) { return InferProduct(c, {}); })
      .AddKernel(
          {.name = "reference", .run = [](KernelArgs& args) { return ReferenceProduct(args, {}); }})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .run = [](KernelArgs& args) { return LinearProduct(args, {}); }});
}

}  // namespace pagefuse::onnx_ops
