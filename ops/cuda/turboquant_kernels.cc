// SPDX-License-Identifier: Apache-2.0
// TurboQuantInsert, TurboQuantAttention and TurboQuantDequant on the device.
#include <algorithm>
#include <cmath>
#include <span>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/attention_run.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/cuda/slot_mapping.h"
#include "pagefuse/ops/kernels/cuda/turboquant.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant_attention.h"

namespace pagefuse::cuda {
namespace {

using pagefuse_ops::TurboQuantAttributes;
using pagefuse_ops::TurboQuantPorts;

// Given centroids, or the format's own.
CentroidTable CentroidsOf(const KernelArgs& args, const TurboQuantPorts& ports,
                          const TurboQuantFormat& format) {
  CentroidTable table;
  if (!format.has_centroids()) return table;
  table.device = args.input(ports.centroids).as<const float>();
  if (table.device != nullptr) return table;
  const std::span<const float> own = DefaultCentroids(format.head_size, format.key_bits);
  std::copy(own.begin(), own.end(), table.copy);
  return table;
}

const float* RotationOf(const KernelArgs& args, const TurboQuantPorts& ports,
                        const TurboQuantFormat& format) {
  return format.has_centroids() ? args.input(ports.rotation).as<const float>() : nullptr;
}

struct PortNumbers : TurboQuantPorts {
  int key, value, slot_mapping, block_table, seq_lens;

  explicit PortNumbers(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    cache = in("kv_cache"), rotation = in("rotation"), centroids = in("centroids");
    key = in("key"), value = in("value"), slot_mapping = in("slot_mapping");
    block_table = in("block_table"), seq_lens = in("seq_lens");
  }
};

absl::Status CheckSize(int64_t head_size) {
  constexpr int64_t kLongest = kLongestInsertRow / 2;
  if (head_size <= kLongest) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat("heads of more than ", kLongest, " elements, got ", head_size));
}

absl::Status RunInsert(KernelArgs& args, const PortNumbers& ports) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes,
                      pagefuse_ops::ReadTurboQuantAttributes(*args.node));
  const TensorArg& key = args.input(ports.key);
  PF_RETURN_IF_ERROR(CheckSize(key.dim(2)));
  TurboQuantInsert insert;
  insert.format = attributes.Format(key.dim(2));
  insert.rotation = RotationOf(args, ports, insert.format);
  insert.centroids = CentroidsOf(args, ports, insert.format);
  insert.source_type = key.dtype;
  insert.key = key.data;
  insert.value = args.input(ports.value).data;
  insert.heads = static_cast<int>(key.dim(1));
  insert.rows = pagefuse_ops::TurboQuantSlots(args.output(0));
  insert.slots = SlotMappingOf(args, ports.slot_mapping);
  return LaunchStatus(LaunchTurboQuantInsert(insert, StreamOf(args)));
}

absl::Status RunDequant(KernelArgs& args, const PortNumbers& ports) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes,
                      pagefuse_ops::ReadTurboQuantAttributes(*args.node));
  PF_ASSIGN_OR_RETURN(const int64_t head_size, args.node->IntAttribute("head_size", 0));
  PF_ASSIGN_OR_RETURN(const int64_t inverse, args.node->IntAttribute("inverse_rotate", 0));
  PF_RETURN_IF_ERROR(CheckSize(head_size));
  const TensorArg& cache = args.input(ports.cache);
  const TensorArg& table = args.input(ports.block_table);
  TurboQuantDequant dequant;
  dequant.format = attributes.Format(head_size);
  dequant.norm_correction = attributes.norm_correction;
  dequant.inverse_rotate = inverse != 0;
  dequant.rotation = RotationOf(args, ports, dequant.format);
  dequant.centroids = CentroidsOf(args, ports, dequant.format);
  dequant.slots = pagefuse_ops::TurboQuantSlots(cache);
  dequant.block_table = table.as<const int32_t>();
  dequant.seq_lens = args.input(ports.seq_lens).as<const int32_t>();
  dequant.sequences = table.dim(0);
  dequant.table_columns = table.dim(1);
  dequant.heads = cache.dim(2);
  dequant.positions = args.output(0).dim(2);
  dequant.key = args.output(0).data;
  dequant.value = args.output(1).data;
  return LaunchStatus(LaunchTurboQuantDequant(dequant, StreamOf(args)));
}

constexpr auto& kIn = kTurboQuantAttentionIn;
constexpr TurboQuantPorts kAttentionPorts = pagefuse_ops::TurboQuantPortsOf(kIn);

// Sizes and pointers of the call.
AttentionBatch BatchOf(const KernelArgs& args) {
  const TensorArg& query = args.input(kIn["query"]);
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  AttentionBatch batch = {};
  batch.num_tokens = query.dim(0);
  batch.num_heads = query.dim(1);
  batch.head_size = query.dim(2);
  batch.num_blocks = cache.dim(0);
  batch.block_size = cache.dim(1);
  batch.num_kv_heads = cache.dim(2);
  batch.num_sequences = args.input(kIn["seq_lens"]).dim(0);
  batch.table_columns = args.input(kIn["block_table"]).dim(1);
  batch.query_start_loc = args.input(kIn["query_start_loc"]).as<const int32_t>();
  batch.seq_lens = args.input(kIn["seq_lens"]).as<const int32_t>();
  batch.block_table = args.input(kIn["block_table"]).as<const int32_t>();
  return batch;
}

// The two parts of each slot.
void SetSlots(const TensorArg& cache, PagedAttention& call) {
  call.keys = call.values = pagefuse_ops::TurboQuantSlots(cache);
  // A cache without bytes has no rows to point at.
  if (cache.size() > 0) call.values.data += call.slot.KeyBytes();
}

absl::Status RunTurboQuantAttention(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes,
                      pagefuse_ops::ReadTurboQuantAttributes(*args.node));
  PagedAttention call = {};
  call.batch = BatchOf(args);
  PF_ASSIGN_OR_RETURN(const int64_t window, args.node->IntAttribute("sliding_window", 0));
  call.batch.rules.sliding_window = WithinReach(window);
  PF_ASSIGN_OR_RETURN(call.batch.rules.softcap, args.node->FloatAttribute("softcap", 0));
  PF_RETURN_IF_ERROR(ReadNanValue(*args.node, call.batch.rules));
  const float root = std::sqrt(static_cast<float>(call.batch.head_size));
  PF_ASSIGN_OR_RETURN(call.batch.scale, args.node->FloatAttribute("scale", 1.0f / root));
  const TensorArg& query = args.input(kIn["query"]);
  const TensorArg& sink = args.input(kIn["head_sink"]);
  call.compute_type = call.output_type = query.dtype;
  call.query = query.data;
  call.sink_type = sink.dtype;
  call.head_sink = sink.data;
  call.is_turboquant = true;
  call.slot = attributes.Format(call.batch.head_size);
  call.norm_correction = attributes.norm_correction;
  call.rotation = RotationOf(args, kAttentionPorts, call.slot);
  call.centroids = CentroidsOf(args, kAttentionPorts, call.slot);
  SetSlots(args.input(kIn["kv_cache"]), call);
  call.output = args.output(0).data;
  call.lse = args.output(1).as<float>();
  return RunAttention(args, call, kIn["query_start_loc"]);
}

}  // namespace

void AddTurboQuantKernels(OpRegistry& ops) {
  const PortNumbers insert(*ops.Find("pagefuse", "TurboQuantInsert", 1));
  AddKernelTo(
      ops, "pagefuse", "TurboQuantInsert",
      {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = [insert](KernelArgs& args) {
         return RunInsert(args, insert);
       }});
  AddKernelTo(ops, "pagefuse", "TurboQuantAttention",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .host_inputs = {kIn["query_start_loc"]},
               .supports = [](const KernelQuery& q) { return CheckHeadLength(q, kIn["query"]); },
               .run = RunTurboQuantAttention});
  const PortNumbers dequant(*ops.Find("pagefuse", "TurboQuantDequant", 1));
  AddKernelTo(
      ops, "pagefuse", "TurboQuantDequant",
      {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = [dequant](KernelArgs& args) {
         return RunDequant(args, dequant);
       }});
}

}  // namespace pagefuse::cuda
