// SPDX-License-Identifier: Apache-2.0
// A custom op of the host: one of our ops with one combination of types.
#pragma once

#include "plugin/ort/ort_abi.h"
#include "plugin/ort/settings.h"

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/type_rows.h"

namespace pagefuse::ort {

// The host reads it as the CustomOp that it begins with. Lives until the program ends.
struct OpRow : CustomOp {
  // `infers_shapes`: the host may be told shapes when it loads a graph.
  OpRow(Api* api, const OpDef& op, const TypeRow& types, const Settings& settings,
        bool infers_shapes);

  Api* const api;
  const OpDef& op;
  const TypeRow types;
  const Settings& settings;
};

// Of CustomOp: shapes of the outputs as far as those of the inputs tell them.
Status* InferRowShapes(const CustomOp* self, ShapeInferContext* context);

}  // namespace pagefuse::ort
