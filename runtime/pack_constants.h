// SPDX-License-Identifier: Apache-2.0
// Constants in the order in which kernels read them, made once for all steps of a plan.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/runtime/execution_plan.h"

namespace pagefuse {

// Gives the kernels of a plan and of its bodies what they read packed (ops/schema/packing.h). A constant that nothing reads but kernels
// that take it packed is handed over, and the graph keeps a tensor without data: one constant more is
// in memory at a time. ResourceExhausted naming the node where memory runs out.
absl::Status PackConstants(ExecutionPlan& plan);

}  // namespace pagefuse
