// SPDX-License-Identifier: Apache-2.0
// A graph of 16-bit floats as a graph of float, which tells what those roundings are.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// The model with float in place of float16 and bfloat16 everywhere: constants, casts, inputs and
// outputs, subgraphs and functions. ResourceExhausted where there is no memory for the constants;
// Unimplemented naming one whose numbers are not there.
absl::StatusOr<Model> InFloat(const Model& model);

}  // namespace pagefuse
