// SPDX-License-Identifier: Apache-2.0
// A run of a plan with a device for a caller who has host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/executor.h"

namespace pagefuse {

// Where a caller finds what the device computed.
enum class OutputsIn { kHost, kTheirPlace };

// As Executor::Run, but that feeds which the device updates may be the host's: they are copied there, and back
// where the run updated them (`updated`, by input) and they are writable. Of the outputs those at `wanted`
// places lie in the host's memory, in `bound` where that is defined, or where they are; others are undefined. An output that is
// an updated feed is that feed, wherever it lies. Returns when all of it is done, with the errors of the
// device; with outputs in their place when all of it is asked for, and Settle is to be called.
absl::StatusOr<std::vector<Tensor>> RunOnDevice(Executor& executor,
                                                const std::vector<bool>& updated,
                                                const std::vector<Tensor>& feeds,
                                                const std::vector<Tensor>& bound,
                                                const std::vector<size_t>& wanted,
                                                OutputsIn outputs_in = OutputsIn::kHost);

// Waits until the last run is done, and gives the errors of the device.
absl::Status Settle(Executor& executor);

}  // namespace pagefuse
