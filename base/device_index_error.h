// SPDX-License-Identifier: Apache-2.0
// What kernels of devices tell of indices that a device computed.
#pragma once

#include <cstdint>

namespace pagefuse {

// An index out of range that a kernel found among what the device computed: of all that a run finds, one.
// In memory that both see (DeviceContext::shared_memory); all zeros where there is none.
struct DeviceIndexError {
  int32_t step = 0;   // of the plan, from 1
  int32_t input = 0;  // of the step's node
  int64_t element = 0, value = 0;
};

}  // namespace pagefuse
