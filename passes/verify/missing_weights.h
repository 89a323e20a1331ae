// SPDX-License-Identifier: Apache-2.0
// Makes numbers for weights whose file is missing, so that a graph can be compared with what passes
// make of it.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// Puts small random numbers, the same from run to run, in place of initialisers whose data was left
// out. ResourceExhausted, and nothing is done, if they would take more than half of the memory;
// Unimplemented naming a value of a type that cannot be made up.
absl::Status FillMissingWeights(Model& model);

}  // namespace pagefuse
