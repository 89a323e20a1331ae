// SPDX-License-Identifier: Apache-2.0
// What MqaLogits, PagedMqaLogits and PagedIndexerTopK share: their kernels.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/indexer/key_choice.h"
#include "pagefuse/ops/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

// The kernels of an op that `make_problem` turns into one call: "reference", "hwy", "tiles". Its
// arguments are checked but for attributes.
using MqaProblemOf = absl::StatusOr<MqaLogitsProblem> (*)(const KernelArgs& args);
void AddMqaLogitsKernels(OpDef& op, MqaProblemOf make_problem);

// Kernels of the same names, of an op that `run` computes by scores of its own; null: plainly.
using MqaRun = std::function<absl::Status(KernelArgs& args, MqaLogitsFn score)>;
void AddMqaKernels(OpDef& op, const MqaRun& run);

}  // namespace pagefuse::pagefuse_ops
