// SPDX-License-Identifier: Apache-2.0
// Which nodes of a plan run on a device, and what is copied between it and the host.
#pragma once

#include <functional>

#include "absl/status/status.h"

#include "pagefuse/runtime/execution_plan.h"

namespace pagefuse {

// Of indices, positions, lengths and choices: of such values the host keeps track.
bool IsIndexType(DataType type);

// Takes a plan whose steps all have the kernels that the plan's device has for them (Kernel::device), or the
// host's, and whose values are all the host's but for graph inputs that lie on the device. Afterwards steps with a kernel of the device run there, but for
// arithmetic on integers that the host knows; views stay where their data is. Steps of the host that read
// nothing of the device come first (ExecutionPlan::device_begin). A value that both need is two: of graph inputs
// and of these steps the device's are copied together before it begins, of constants once, when UploadConstants is
// called, and of others in front of the first node that needs the second one. A graph input that the device updates in place,
// as it does with caches, is on the device alone. Memory is not placed yet. `use_host_kernel` gives a step the
// kernel of the CPU; its errors.
absl::Status PlaceOnDevice(ExecutionPlan& plan,
                           const std::function<absl::Status(PlannedStep&)>& use_host_kernel);

// Copies constants that steps of the device read to its memory. Pages of mapped files go back to the system.
// ResourceExhausted if the device has no memory for them.
absl::Status UploadConstants(ExecutionPlan& plan);

}  // namespace pagefuse
