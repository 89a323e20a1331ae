// SPDX-License-Identifier: Apache-2.0
// Kernels and conditions of plug-ins in C, as ours.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/passes/rewrite/condition_value.h"
#include "pagefuse/plugin.h"

namespace pagefuse {

// InvalidArgument for what a kernel may not say.
absl::StatusOr<Kernel> MakeNativeKernel(const pf_host* host, const pf_kernel& kernel);

absl::StatusOr<std::shared_ptr<const ConditionFunction>> MakeNativeCondition(
    const pf_host* host, const pf_condition& condition);

}  // namespace pagefuse
