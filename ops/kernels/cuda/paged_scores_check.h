// SPDX-License-Identifier: Apache-2.0
// Looks at what says which keys queries of a paged cache see, where the device computed it (Kernel::checks_indices).
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits.h"

namespace pagefuse::cuda {

// Of all rows of an op: tells lengths that the columns or the block table have no room for, used entries of the
// table that are no blocks, and starts that do not rise from 0 to the number of rows. Numbers of the op's inputs.
struct PagedScoresCheck {
  MqaLogits scores;
  IndexErrors errors;
  int lengths = 0, tables = 0, starts = 0;
};
Error LaunchPagedScoresCheck(const PagedScoresCheck& check, Stream stream);

}  // namespace pagefuse::cuda
