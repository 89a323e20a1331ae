// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cuda/cuda.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/device_name.h"
#include "pagefuse/ops/kernels/cuda/context.h"
#include "pagefuse/ops/kernels/cuda/machine.h"
#include "pagefuse/ops/registry/builtin_ops.h"

namespace pagefuse {

absl::StatusOr<std::shared_ptr<DeviceContext>> OpenDevice(std::string_view name) {
  PF_ASSIGN_OR_RETURN(const std::optional<int> ordinal, ParseDeviceName(name));
  if (!ordinal) return nullptr;
  PF_RETURN_IF_ERROR(CheckMachine(cuda::LookAtMachine(*ordinal), *ordinal));
  return cuda::CreateContext(*ordinal);
}

void AddCudaKernels(OpRegistry& ops) {
  cuda::AddElementwiseKernels(ops);
  cuda::AddMovementKernels(ops);
  cuda::AddIndexedMovementKernels(ops);
  cuda::AddRowKernels(ops);
  cuda::AddAddNormKernels(ops);
  cuda::AddTopKKernels(ops);
  cuda::AddProductKernels(ops);
  cuda::AddGroupedProductKernels(ops);
  cuda::AddInsertKernels(ops);
  cuda::AddAttentionKernels(ops);
  cuda::AddTurboQuantKernels(ops);
  cuda::AddIndexerKernels(ops);
  cuda::AddGroupedRowKernels(ops);
  cuda::AddRopeQuantKernels(ops);
  cuda::AddCompressKernels(ops);
  cuda::AddSlotKernels(ops);
  cuda::AddLatentKernels(ops);
  cuda::AddHyperConnectionKernels(ops);
  cuda::AddSamplingKernels(ops);
}

namespace cuda {

Stream StreamOf(const KernelArgs& args) {
  PF_CHECK(args.device != nullptr);
  return static_cast<Stream>(args.device->queue());
}

IndexErrors IndexErrorsOf(const KernelArgs& args) { return {args.index_error, args.step}; }

absl::Status LaunchStatus(Error error) { return LaunchError(error); }

void AddKernelTo(OpRegistry& ops, std::string_view domain, std::string_view op, Kernel kernel) {
  kernel.device = Device::kCuda;
  const absl::Status added = ops.AddKernel(domain, op, kernel);
  if (added.ok()) return;
  // A fault of ours that no input brings about.
  std::fprintf(stderr, "%s\n", std::string(added.message()).c_str());
  std::abort();
}

}  // namespace cuda
}  // namespace pagefuse
