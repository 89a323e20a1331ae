// SPDX-License-Identifier: Apache-2.0
// MqaLogits and PagedMqaLogits on the device.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/paged_scores_call.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits.h"

namespace pagefuse::cuda {
namespace {

DataType QueryType(const TensorArg& q) {
  return q.dtype == DataType::kUint8 ? DataType::kFloat8E4M3FN : q.dtype;
}

absl::Status Score(const KernelArgs& args, const MqaLogits& call) {
  const Stream stream = StreamOf(args);
  const size_t bytes = MqaLogitsWorkspace(call);
  void* workspace = bytes == 0 ? nullptr : args.scratch->Get(bytes);
  return LaunchStatus(LaunchMqaLogits(call, workspace, stream));
}

struct DensePorts {
  int q, k, k_scale, weights, ks, ke;

  explicit DensePorts(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    q = in("q"), k = in("k"), k_scale = in("k_scale"), weights = in("weights");
    ks = in("ks"), ke = in("ke");
  }
};

absl::Status RunDense(KernelArgs& args, const DensePorts& ports) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  const TensorArg& q = args.input(ports.q);
  MqaLogits call;
  call.query_type = QueryType(q);
  call.q = q.as<const uint8_t>();
  call.weights = args.input(ports.weights).as<const float>();
  call.rows = q.dim(0);
  call.heads = static_cast<int>(q.dim(1));
  call.head_size = static_cast<int>(q.dim(2));
  call.width = args.input(ports.k).dim(0);
  call.keys.data = args.input(ports.k).as<uint8_t>();
  call.keys.scales = args.input(ports.k_scale).as<uint8_t>();
  call.keys.num_blocks = 1;
  call.keys.block_size = std::max<int64_t>(call.width, 1);
  call.keys.data_strides.row = call.head_size;
  call.keys.scale_strides.row = sizeof(float);
  call.begins = args.input(ports.ks).as<const int32_t>();
  call.ends = args.input(ports.ke).as<const int32_t>();
  call.clean = clean != 0;
  call.logits = args.output(0).as<float>();
  return Score(args, call);
}

absl::Status RunPaged(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  PF_ASSIGN_OR_RETURN(MqaLogits call, PagedScoresCall(args));
  call.clean = clean != 0;
  call.width = args.output(0).dim(1);
  call.logits = args.output(0).as<float>();
  return Score(args, call);
}

}  // namespace

void AddIndexerKernels(OpRegistry& ops) {
  const DensePorts dense(*ops.Find("pagefuse", "MqaLogits", 1));
  AddKernelTo(
      ops, "pagefuse", "MqaLogits",
      {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = [dense](KernelArgs& args) {
         return RunDense(args, dense);
       }});
  AddKernelTo(ops, "pagefuse", "PagedMqaLogits",
              {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = RunPaged});
}

}  // namespace pagefuse::cuda
