// SPDX-License-Identifier: Apache-2.0
// Declares the function behind every line of ops.inc: PF_OP(onnx, MatMul) is OpDef
// onnx_ops::MatMulDef().
#pragma once

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

#define PF_OP(family, op)  \
  namespace family##_ops { \
    OpDef op##Def();       \
  }
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP

class OpRegistry;

// Adds the kernels that this build has for CUDA devices (ops/cuda).
void AddCudaKernels(OpRegistry& ops);

}  // namespace pagefuse
