// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention and SinkAttention on the device.
#include <algorithm>
#include <initializer_list>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/sink_attention.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse::cuda {
namespace {

absl::Status TooLong(int64_t longest, int64_t size) {
  return absl::UnimplementedError(StrCat("rows of more than ", longest, " elements, got ", size));
}
absl::Status NoMemory(int64_t size) {
  return absl::UnimplementedError(
      StrCat("no shared memory for tiles of rows of ", size, " elements"));
}

// Refuses inputs whose last dim is known to be longer.
absl::Status CheckRowLength(const KernelQuery& query, std::initializer_list<int> inputs,
                            int64_t longest) {
  for (const int input : inputs) {
    const Value* value = query.node->input(input);
    if (value == nullptr || !value->shape() || value->shape()->rank() == 0) continue;
    const std::optional<int64_t> size = (*value->shape())[value->shape()->rank() - 1].constant();
    if (size && *size > longest) return TooLong(longest, *size);
  }
  return absl::OkStatus();
}

template <typename Call>
void* WorkspaceOf(const KernelArgs& args, size_t (*bytes_of)(const Call&), const Call& call) {
  const size_t bytes = bytes_of(call);
  return bytes == 0 ? nullptr : args.scratch->Get(bytes);
}

// --- SparseMlaAttention ---

void SetLists(const KernelArgs& args, const SparseMlaAttributes& a, SparseMla& call) {
  call.num_lists = args.input(kLatentLists[1].cache).present() ? 2 : 1;
  for (int i = 0; i < call.num_lists; ++i) {
    const TensorArg& indices = args.input(kLatentLists[i].indices);
    SparseMla::List& list = call.lists[i];
    list.rows = LatentRowsOf(args, a, kLatentLists[i]);
    list.indices = indices.as<const int32_t>();
    if (indices.present()) list.columns = indices.dim(1);
    list.lens = args.input(kLatentLists[i].lens).as<const int32_t>();
    list.indices_input = kLatentLists[i].indices;
    list.lens_input = kLatentLists[i].lens;
  }
}

void SetTable(const KernelArgs& args, bool is_causal, SparseMla& call) {
  call.block_table_input = kSparseMlaIn["block_table"];
  call.seq_lens_input = kSparseMlaIn["seq_lens"];
  call.query_start_loc_input = kSparseMlaIn["query_start_loc"];
  const TensorArg& table = args.input(call.block_table_input);
  call.is_dense = table.present();
  if (!call.is_dense) return;
  call.block_table = table.as<const int32_t>();
  call.sequences = table.dim(0);
  call.table_columns = table.dim(1);
  call.seq_lens = args.input(call.seq_lens_input).as<const int32_t>();
  call.query_start_loc = args.input(call.query_start_loc_input).as<const int32_t>();
  call.is_causal = is_causal;
}

absl::StatusOr<SparseMla> MakeSparseMla(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SparseMlaAttributes a, ReadSparseMla(*args.node));
  const TensorArg& q = args.input(kSparseMlaIn["q"]);
  if (q.dim(2) > kLongestLatentRow) return TooLong(kLongestLatentRow, q.dim(2));
  SparseMla call;
  call.query_type = q.dtype;
  call.plain = a.format == LatentFormat::kPlain;
  call.element = args.input(kSparseMlaIn["kv_cache"]).dtype;
  if (!call.plain) call.grouped = a.grouped(q.dim(2));
  call.tokens = q.dim(0);
  call.heads = q.dim(1);
  call.head_size = static_cast<int>(q.dim(2));
  call.value_size = static_cast<int>(a.head_dim_v);
  call.scale = a.scale;
  call.q = q.data;
  call.sink = args.input(kSparseMlaIn["attn_sink"]).as<const float>();
  call.out = args.output(kSparseMlaOut["out"]).data;
  call.lse = args.output(kSparseMlaOut["lse"]).as<float>();
  SetLists(args, a, call);
  SetTable(args, a.is_causal, call);
  call.errors = IndexErrorsOf(args);
  return call;
}

absl::Status RunSparseMlaOnDevice(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SparseMla call, MakeSparseMla(args));
  if (!HasMemoryForSparseMla(call)) return NoMemory(call.head_size);
  void* workspace = WorkspaceOf(args, SparseMlaWorkspace, call);
  return LaunchStatus(LaunchSparseMla(call, workspace, StreamOf(args)));
}

// --- SinkAttention ---

struct SinkPortNumbers {
  int query, key, value, mask, sinks;

  explicit SinkPortNumbers(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    query = in("query"), key = in("key"), value = in("value");
    mask = in("mask"), sinks = in("sinks");
  }
};

absl::Status RunSinkAttention(KernelArgs& args, const SinkPortNumbers& ports) {
  const TensorArg& q = args.input(ports.query);
  const TensorArg& k = args.input(ports.key);
  const TensorArg& v = args.input(ports.value);
  const TensorArg& mask = args.input(ports.mask);
  const int64_t longest = std::max(q.dim(3), v.dim(3));
  if (longest > kLongestSinkRow) return TooLong(kLongestSinkRow, longest);
  SinkAttention call;
  PF_ASSIGN_OR_RETURN(call.scale, args.node->FloatAttribute("scale", 1));
  call.batch = q.dim(0);
  call.heads = q.dim(1);
  call.queries = q.dim(2);
  call.groups = k.dim(1);
  call.keys = k.dim(2);
  call.size = static_cast<int>(q.dim(3));
  call.value_size = static_cast<int>(v.dim(3));
  call.query = q.as<const float>();
  call.key = k.as<const float>();
  call.value = v.as<const float>();
  call.mask = mask.as<const float>();
  int64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    call.mask_strides[axis] = mask.dim(axis) == 1 ? 0 : stride;
    stride *= mask.dim(axis);
  }
  call.sinks = args.input(ports.sinks).as<const float>();
  call.out = args.output(0).as<float>();
  if (!HasMemoryForSinkAttention(call)) return NoMemory(longest);
  void* workspace = WorkspaceOf(args, SinkAttentionWorkspace, call);
  return LaunchStatus(LaunchSinkAttention(call, workspace, StreamOf(args)));
}

}  // namespace

void AddLatentKernels(OpRegistry& ops) {
  AddKernelTo(ops, "pagefuse", "SparseMlaAttention",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .supports =
                   [](const KernelQuery& query) {
                     return CheckRowLength(query, {kSparseMlaIn["q"]}, kLongestLatentRow);
                   },
               .run = RunSparseMlaOnDevice});
  const SinkPortNumbers sink(*ops.Find("pagefuse", "SinkAttention", 1));
  AddKernelTo(ops, "pagefuse", "SinkAttention",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .supports =
                   [sink](const KernelQuery& query) {
                     return CheckRowLength(query, {sink.query, sink.value}, kLongestSinkRow);
                   },
               .run = [sink](KernelArgs& args) { return RunSinkAttention(args, sink); }});
}

}  // namespace pagefuse::cuda
