// SPDX-License-Identifier: Apache-2.0
// Where a kernel says that an index which the device computed is out of range (Kernel::checks_indices).
#pragma once

#include <cstdint>

#include "pagefuse/base/device_index_error.h"

namespace pagefuse::cuda {

// Of one call. Passed to kernels by value.
struct IndexErrors {
  DeviceIndexError* error = nullptr;  // that kernels can write; null: nobody asks
  int step = 0;                       // of the plan, from 1

#ifdef __CUDACC__
  // Element `element` of the node's input has a value out of range. The first one of a run stays.
  __device__ void Tell(int input, int64_t element, int64_t value) const {
    if (error == nullptr || atomicCAS(&error->step, 0, step) != 0) return;
    error->input = input;
    error->element = element;
    error->value = value;
  }
#endif
};

}  // namespace pagefuse::cuda
