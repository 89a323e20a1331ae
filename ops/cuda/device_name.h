// SPDX-License-Identifier: Apache-2.0
// Names of devices, and what keeps one from being used. The same in builds with and without CUDA.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/cuda/machine.h"

namespace pagefuse {

// The number of the GPU in "cuda" (0) or "cuda:N"; nullopt for "cpu". InvalidArgument `expected cpu, cuda or cuda:N, got "gpu"`.
absl::StatusOr<std::optional<int>> ParseDeviceName(std::string_view name);

// FailedPrecondition saying why GPU `ordinal` of this machine cannot be used.
absl::Status CheckMachine(const cuda::Machine& machine, int ordinal);

// What a build without CUDA says.
absl::Status NoCudaInBuild();

}  // namespace pagefuse
