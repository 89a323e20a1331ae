// SPDX-License-Identifier: Apache-2.0
// MqaLogits and PagedMqaLogits on the device.
#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"

namespace pagefuse::cuda {
namespace {

using namespace pagefuse_ops;  // ports of paged scores

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

MqaKeyFormat FormatOfNumbers(DataType type) {
  if (type == DataType::kFloat16) return MqaKeyFormat::kFloat16;
  return type == DataType::kBfloat16 ? MqaKeyFormat::kBfloat16 : MqaKeyFormat::kFloat;
}

absl::Status SetPagedKeys(const KernelArgs& args, MqaLogits& call) {
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", kKeysOfCodes));
  const TensorArg& cache = args.input(kPagedKeys);
  const PagedBytes paged = {.num_blocks = cache.dim(0),
                            .block_size = std::max<int64_t>(cache.dim(1), 1),
                            .block_bytes = cache.block_bytes()};
  if (format == kKeysOfNumbers) {
    call.key_format = FormatOfNumbers(cache.dtype);
    call.keys = PlainRows(cache.dim(-1) * BitWidth(cache.dtype) / 8, paged, cache.data);
  } else if (format == kKeysOfFourBits) {
    call.key_format = MqaKeyFormat::kFourBits;
    call.keys = GroupedRows(IndexerMxfp4Row(call.head_size), paged, cache.data);
  } else {
    call.keys = GroupedRows(IndexerFp8Row(call.head_size, call.head_size), paged, cache.data);
  }
  return absl::OkStatus();
}

absl::Status RunPaged(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  const TensorArg& q = args.input(kPagedQ);
  const TensorArg& tables = args.input(kPagedTables);
  const TensorArg& starts = args.input(kPagedStarts);
  MqaLogits call;
  call.query_type = QueryType(q);
  call.q = q.as<const uint8_t>();
  call.weights = args.input(kPagedWeights).as<const float>();
  call.rows = args.input(kPagedWeights).dim(0);
  call.heads = static_cast<int>(q.dim(-2));
  call.head_size = static_cast<int>(q.dim(-1));
  PF_RETURN_IF_ERROR(SetPagedKeys(args, call));
  call.block_table = tables.as<const int32_t>();
  call.table_columns = tables.dim(1);
  call.sequences = tables.dim(0);
  call.lengths = args.input(kPagedLengths).as<const int32_t>();
  if (starts.present()) {
    call.starts = starts.as<const int32_t>();
  } else {
    call.queries = std::max<int64_t>(q.dim(1), 1);
  }
  call.ratio = ratio;
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
