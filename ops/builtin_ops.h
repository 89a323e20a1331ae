// Declares the function behind every line of ops.inc: PF_OP(onnx, MatMul) is OpDef
// onnx_ops::MatMulDef().
#pragma once

#include "pagefuse/ops/op_def.h"

namespace pagefuse {

#define PF_OP(family, op)  \
  namespace family##_ops { \
    OpDef op##Def();       \
  }
#include "pagefuse/ops/ops.inc"
#undef PF_OP

}  // namespace pagefuse
