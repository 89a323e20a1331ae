// SPDX-License-Identifier: Apache-2.0
// PagedAttention and MergeAttnStates on the device.
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/attention_run.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/known_formats.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/merge_attn_states.h"
#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/paged_prefill.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_call.h"

namespace pagefuse::cuda {
namespace {

absl::Status TooLong(int64_t head_size) {
  return absl::UnimplementedError(
      StrCat("heads of more than ", kLongestAttentionHead, " elements, got ", head_size));
}

constexpr size_t kFloat = sizeof(float);

void* Memory(const KernelArgs& args, int64_t count, int slot) {
  if (count == 0) return nullptr;
  return args.scratch->Get(static_cast<size_t>(count) * kFloat, slot);
}

void TakeMemory(const KernelArgs& args, int64_t query, int64_t values, int64_t sums,
                PagedAttention& call) {
  call.rotated_query = static_cast<float*>(Memory(args, query, 0));
  call.partial_values = static_cast<float*>(Memory(args, values, 1));
  call.partial_sums = static_cast<float*>(Memory(args, sums, 2));
}

void TakeMemory(const KernelArgs& args, const AttentionCut& cut, PagedAttention& call) {
  const AttentionWorkspace work = WorkspaceOf(call, cut);
  TakeMemory(args, work.rotated_query, work.partial_values, work.partial_sums, call);
}

Error RunPlain(const KernelArgs& args, PagedAttention& call) {
  const AttentionCut cut = CutAttention(call.batch);
  TakeMemory(args, cut, call);
  return LaunchPagedAttention(call, cut, StreamOf(args));
}

Error RunPrefill(const KernelArgs& args, PagedAttention& call, const PrefillPlan& plan) {
  TakeMemory(args, plan.cut, call);
  return LaunchPagedPrefill(call, plan, StreamOf(args));
}

Error RunDecode(const KernelArgs& args, PagedAttention& call, const DecodePlan& plan) {
  static_assert(sizeof(int32_t) == kFloat);
  const DecodeWorkspace work = DecodeWorkspaceOf(call, plan);
  TakeMemory(args, work.rotated_query, work.partial_values, work.partial_sums, call);
  auto* starts = static_cast<int32_t*>(Memory(args, work.starts, 3));
  return LaunchPagedDecode(call, plan, starts, StreamOf(args));
}

// Whether the host knows that no sequence has more than one token.
bool HasTokenEach(const KernelArgs& args, const AttentionBatch& batch, int query_start_loc) {
  if (batch.query_start_loc == nullptr) return true;
  if (batch.num_tokens > batch.num_sequences) return false;
  const auto* starts = args.host_input(query_start_loc).as<const int32_t>();
  if (starts == nullptr) return false;
  for (int64_t b = 0; b < batch.num_sequences; ++b) {
    if (starts[b + 1] - starts[b] > 1) return false;
  }
  return true;
}

absl::Status RunPagedAttention(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem form, MakePagedAttentionForm(args));
  PagedAttention call = AttentionOf(form);
  call.k_scale = args.input(kPagedAttentionIn["k_scale"]).as<const float>();
  call.v_scale = args.input(kPagedAttentionIn["v_scale"]).as<const float>();
  call.q_scale = args.input(kPagedAttentionIn["q_scale"]).as<const float>();
  return RunAttention(args, call, kPagedAttentionIn["query_start_loc"]);
}

struct MergePorts {
  int prefix, prefix_lse, suffix, suffix_lse, scale;

  explicit MergePorts(const OpDef& op)
      : prefix(PortNumber(op.inputs(), "prefix_output")),
        prefix_lse(PortNumber(op.inputs(), "prefix_lse")),
        suffix(PortNumber(op.inputs(), "suffix_output")),
        suffix_lse(PortNumber(op.inputs(), "suffix_lse")),
        scale(PortNumber(op.inputs(), "output_scale")) {}
};

absl::Status RunMerge(KernelArgs& args, const MergePorts& ports) {
  const TensorArg& prefix = args.input(ports.prefix);
  MergeAttnStates merge;
  merge.tokens = prefix.dim(0);
  merge.heads = prefix.dim(1);
  merge.head_size = prefix.dim(2);
  merge.type = prefix.dtype;
  merge.prefix = prefix.data;
  merge.suffix = args.input(ports.suffix).data;
  merge.prefix_lse = args.input(ports.prefix_lse).as<const float>();
  merge.suffix_lse = args.input(ports.suffix_lse).as<const float>();
  merge.output = args.output(0).data;
  merge.output_lse = args.output(1).as<float>();
  merge.output_scale = args.input(ports.scale).as<const float>();
  PF_ASSIGN_OR_RETURN(merge.context_tokens,
                      args.node->IntAttribute("prefill_tokens_with_context", -1));
  if (merge.context_tokens < 0) merge.context_tokens = merge.tokens;
  return LaunchStatus(LaunchMergeAttnStates(merge, StreamOf(args)));
}

}  // namespace

PagedAttention AttentionOf(const PagedAttentionProblem& form) {
  PagedAttention call = {};
  call.batch = form;
  call.compute_type = form.compute_type;
  call.output_type =
      form.output_type == DataType::kUint8 ? DataType::kFloat8E4M3FN : form.output_type;
  call.sink_type = form.sink_type;
  if (form.turboquant) {
    call.is_turboquant = true;
    call.slot = form.turboquant->format;
    call.norm_correction = form.turboquant->norm_correction;
  } else {
    call.mode = form.format.mode;
    call.element = form.format.element;
  }
  call.keys = form.keys;
  call.values = form.values;
  call.query = form.query;
  call.head_sink = form.head_sink;
  call.output_scale = form.output_scale;
  call.rht_signs = form.rht_signs;
  call.output = form.output;
  call.lse = form.lse;
  return call;
}

absl::Status RunAttention(KernelArgs& args, PagedAttention call, int query_start_loc) {
  if (call.batch.head_size > kLongestAttentionHead) return TooLong(call.batch.head_size);
  if (HasTokenEach(args, call.batch, query_start_loc)) {
    const DecodePlan plan = PlanDecode(call, CurrentDecodeDevice());
    if (plan.format != DecodeFormat::kNone) {
      const Error error = RunDecode(args, call, plan);
      if (error != kNoDecode) return LaunchStatus(error);
    }
  } else if (const PrefillPlan plan = PlanPrefill(call, Multiprocessors());
             plan.element != DataType::kUndefined) {
    const Error error = RunPrefill(args, call, plan);
    if (error != kNoPrefill) return LaunchStatus(error);
  }
  return LaunchStatus(RunPlain(args, call));
}

absl::Status CheckHeadLength(const KernelQuery& query, int input) {
  const Value* value = query.node->input(input);
  if (value == nullptr || !value->shape() || value->shape()->rank() != 3) return absl::OkStatus();
  const std::optional<int64_t> size = (*value->shape())[2].constant();
  return size && *size > kLongestAttentionHead ? TooLong(*size) : absl::OkStatus();
}

void AddAttentionKernels(OpRegistry& ops) {
  AddKernelTo(ops, "pagefuse", "PagedAttention",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .host_inputs = {kPagedAttentionIn["query_start_loc"]},
               .supports =
                   [](const KernelQuery& query) {
                     const absl::Status format = SupportsFormat(query);
                     return format.ok() ? CheckHeadLength(query, kPaQuery) : format;
                   },
               .run = RunPagedAttention});
  const MergePorts merge(*ops.Find("pagefuse", "MergeAttnStates", 1));
  AddKernelTo(
      ops, "pagefuse", "MergeAttnStates",
      {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = [merge](KernelArgs& args) {
         return RunMerge(args, merge);
       }});
}

}  // namespace pagefuse::cuda
