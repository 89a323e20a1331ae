// What MqaLogits and PagedMqaLogits share: their kernels.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"

namespace pagefuse::pagefuse_ops {

// The kernels of an op that `make_problem` turns into one call: "reference", "hwy", "tiles". Its
// arguments are checked but for attributes.
using MqaProblemOf = absl::StatusOr<MqaLogitsProblem> (*)(const KernelArgs& args);
void AddMqaLogitsKernels(OpDef& op, MqaProblemOf make_problem);

}  // namespace pagefuse::pagefuse_ops
