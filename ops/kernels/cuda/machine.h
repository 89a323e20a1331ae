// SPDX-License-Identifier: Apache-2.0
// What CUDA finds on the machine, before anything is done with it.
#pragma once

#include <string>

namespace pagefuse::cuda {

// Kernels need GPUs of this compute capability: 80 is 8.0.
inline constexpr int kLeastCapability = 80;

// Versions as CUDA counts them: 12040 is 12.4. What follows an answer that is missing is missing too.
struct Machine {
  bool has_driver = false;  // libcuda.so.1 can be opened
  int driver_version = 0;   // that the driver supports
  int needed_version = 0;   // by this program
  int gpus = 0;
  std::string failure;  // of a call that should have told: its name and that of the error
  // Of the GPU that was asked for, where there is one of that number.
  std::string name;
  int capability = 0;
};

// Of GPU `ordinal`. Takes no memory of any GPU.
Machine LookAtMachine(int ordinal);

}  // namespace pagefuse::cuda
