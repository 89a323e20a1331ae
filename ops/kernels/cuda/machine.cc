// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/machine.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "pagefuse/ops/kernels/cuda/runtime_status.h"

namespace pagefuse::cuda {
namespace {

bool HasDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

// Whether the call told what it was asked for.
bool Tells(const char* call, cudaError_t error, Machine& machine) {
  if (error == cudaSuccess) return true;
  machine.failure = ErrorText(call, error);
  (void)cudaGetLastError();
  return false;
}

void LookAtGpu(int ordinal, Machine& machine) {
  int major = 0, minor = 0;
  cudaDeviceProp properties;
  if (!Tells("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), machine) ||
      !Tells("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal), machine) ||
      !Tells("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, ordinal), machine)) {
    return;
  }
  machine.name = properties.name;
  machine.capability = 10 * major + minor;
}

}  // namespace

Machine LookAtMachine(int ordinal) {
  Machine machine;
  // Drivers of a later release of the same major version are not needed: kernels come compiled.
  machine.needed_version = CUDART_VERSION / 1000 * 1000;
  machine.has_driver = HasDriver();
  if (!machine.has_driver) return machine;
  if (!Tells("cudaDriverGetVersion", cudaDriverGetVersion(&machine.driver_version), machine) ||
      machine.driver_version < machine.needed_version) {
    return machine;
  }
  const cudaError_t counted = cudaGetDeviceCount(&machine.gpus);
  if (counted == cudaErrorNoDevice) {
    (void)cudaGetLastError();
    machine.gpus = 0;
    return machine;
  }
  if (Tells("cudaGetDeviceCount", counted, machine) && ordinal >= 0 && ordinal < machine.gpus) {
    LookAtGpu(ordinal, machine);
  }
  return machine;
}

}  // namespace pagefuse::cuda
