// SPDX-License-Identifier: Apache-2.0
// Whether all data of a model is there: tensors of files that are missing have none (ir/tensor/absent_tensor.h).
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// FailedPrecondition naming the first value or attribute without data, and how many there are;
// OK if there is none. Subgraphs and functions are looked into.
absl::Status CheckDataPresent(const Model& model);

}  // namespace pagefuse
