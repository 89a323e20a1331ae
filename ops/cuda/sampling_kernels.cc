// SPDX-License-Identifier: Apache-2.0
// SampleTokens on the device.
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/kernels/cuda/sampling.h"
#include "pagefuse/ops/pagefuse/sampling/sample_tokens.h"

namespace pagefuse::cuda {
namespace {

constexpr auto& kIn = pagefuse_ops::kSampleIn;

absl::Status Run(KernelArgs& args) {
  const TensorArg& logits = args.input(kIn["logits"]);
  SampleTokens call;
  call.logits = logits.as<const float>();
  call.rows = logits.dim(0);
  call.columns = logits.dim(1);
  call.settings = args.input(kIn["settings"]).as<const double>();
  call.random = args.input(kIn["random"]).as<const int64_t>();
  call.edit_starts = args.input(kIn["edit_starts"]).as<const int32_t>();
  call.edit_tokens = args.input(kIn["edit_tokens"]).as<const int32_t>();
  call.edit_bias = args.input(kIn["edit_bias"]).as<const double>();
  call.edit_counts = args.input(kIn["edit_counts"]).as<const int32_t>();
  call.edits = args.input(kIn["edit_tokens"]).dim(0);
  const size_t bytes = SampleWorkspace(call);
  if (bytes > 0) call.edited = static_cast<float*>(args.scratch->Get(bytes));
  call.tokens = args.output(0).as<int64_t>();
  return LaunchStatus(LaunchSampleTokens(call, StreamOf(args)));
}

}  // namespace

void AddSamplingKernels(OpRegistry& ops) {
  AddKernelTo(ops, "pagefuse", "SampleTokens",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .run = Run});
}

}  // namespace pagefuse::cuda
