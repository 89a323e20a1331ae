// SPDX-License-Identifier: Apache-2.0
// Index scores over a paged cache, as PagedMqaLogits and PagedIndexerTopK launch them.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/cuda/mqa_logits.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// The call by the ports and attributes that both ops have, of all rows and clean, without logits and their width.
absl::StatusOr<MqaLogits> PagedScoresCall(const KernelArgs& args);

}  // namespace pagefuse::cuda
