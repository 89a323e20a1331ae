// SPDX-License-Identifier: Apache-2.0
// TurboQuantAttention: causal attention over TurboQuant slots. Equals vLLM's
// triton_turboquant_decode_attention; with query_start_loc, one call of it with a row a token.
// Windows, soft caps and sinks, which that kernel ignores in silence, mean what they mean to
// PagedAttention.
#include "pagefuse/ops/pagefuse/turboquant/turboquant_attention.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_body.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_call.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr auto& kIn = kTurboQuantAttentionIn;
constexpr auto& kOut = kTurboQuantAttentionOut;
constexpr TurboQuantPorts kPorts = TurboQuantPortsOf(kIn);
constexpr PackedBatchPorts kBatch = PackedBatchOf(kIn);

absl::StatusOr<AttentionRules> ReadRules(const Node& node) {
  AttentionRules rules;
  PF_ASSIGN_OR_RETURN(const int64_t window, node.IntAttribute("sliding_window", 0));
  rules.sliding_window = WithinReach(window);
  PF_ASSIGN_OR_RETURN(rules.softcap, node.FloatAttribute("softcap", 0));
  PF_RETURN_IF_ERROR(ReadNanValue(node, rules));
  return rules;
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const float softcap, c.node().FloatAttribute("softcap", 0));
  if (!(softcap >= 0))
    return c.AttributeError("softcap", StrCat("expected 0 or more, got ", softcap));
  return CheckRotationGiven(c, kPorts, c.size("D"));
}

// A call of PagedAttention's kernels, and what it refers to.
struct Call {
  PagedAttentionProblem problem = {};
  std::vector<int32_t> starts;  // without the input
};

absl::Status MakeCall(const KernelArgs& args, Call& call) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(*args.node));
  PagedAttentionProblem& p = call.problem;
  PF_ASSIGN_OR_RETURN(p.rules, ReadRules(*args.node));
  const TensorArg& query = args.input(kIn["query"]);
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  p.compute_type = p.output_type = query.dtype;
  p.num_tokens = query.dim(0);
  p.num_heads = query.dim(1);
  p.head_size = query.dim(2);
  p.num_blocks = cache.dim(0);
  p.block_size = cache.dim(1);
  p.num_kv_heads = cache.dim(2);
  p.num_sequences = args.input(kIn["seq_lens"]).dim(0);
  p.table_columns = args.input(kIn["block_table"]).dim(1);
  const float root = std::sqrt(static_cast<float>(p.head_size));
  PF_ASSIGN_OR_RETURN(p.scale, args.node->FloatAttribute("scale", 1.0f / root));

  TurboQuantCache& slots = p.turboquant.emplace();
  slots.format = attributes.Format(p.head_size);
  slots.norm_correction = attributes.norm_correction;
  slots.tables = ReadTurboQuantTables(args, kPorts, slots.format);
  p.keys = p.values = TurboQuantSlots(cache);
  p.keys.scale_strides = p.values.scale_strides = p.keys.data_strides;
  // A cache without bytes has no rows to point at.
  if (cache.size() > 0) {
    p.keys.scales = p.keys.data + slots.format.KeyDataBytes();
    p.values.data += slots.format.KeyBytes();
    p.values.scales = p.values.data + slots.format.ValueDataBytes();
  }
  p.query = query.data;
  p.seq_lens = args.input(kIn["seq_lens"]).as<const int32_t>();
  p.block_table = args.input(kIn["block_table"]).as<const int32_t>();
  p.k_scale = p.v_scale = p.q_scale = 1;
  p.sink_type = args.input(kIn["head_sink"]).dtype;
  p.head_sink = args.input(kIn["head_sink"]).data;
  p.output = args.output(0).data;
  p.lse = args.output(1).as<float>();
  const TensorArg& starts = args.input(kIn["query_start_loc"]);
  if (starts.present()) {
    p.query_start_loc = starts.as<const int32_t>();
    return absl::OkStatus();
  }
  call.starts.resize(static_cast<size_t>(p.num_sequences) + 1);
  std::iota(call.starts.begin(), call.starts.end(), 0);
  p.query_start_loc = call.starts.data();
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  Call call;
  PF_RETURN_IF_ERROR(MakeCall(args, call));
  PF_RETURN_IF_ERROR(ValidatePagedBatch(args, call.problem, kBatch));
  return ValidateCentroids(args, kPorts);
}

absl::Status Reference(KernelArgs& args) {
  Call call;
  PF_RETURN_IF_ERROR(MakeCall(args, call));
  return RunPagedAttentionReference(call.problem);
}

absl::Status Hwy(KernelArgs& args) {
  Call call;
  PF_RETURN_IF_ERROR(MakeCall(args, call));
  RunPagedAttention(call.problem, *args.scratch);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PagedAttentionBody::Options options;
  PF_ASSIGN_OR_RETURN(
      options.turboquant,
      ReadTurboQuantBody(node, kPorts, NumberOf(node, kIn["query"], 2).value_or(-1)));
  options.query_type = options.compute_type = options.output_type =
      node.input(kIn["query"])->dtype();
  options.has_query_start_loc = node.input(kIn["query_start_loc"]) != nullptr;
  options.has_lse = node.output(1) != nullptr;
  PF_ASSIGN_OR_RETURN(static_cast<AttentionRules&>(options.attributes), ReadRules(node));
  if (const Value* sink = node.input(kIn["head_sink"])) {
    options.has_sink = true;
    options.sink_type = sink->dtype();
  }
  if (node.attribute("scale") != nullptr) {
    PF_ASSIGN_OR_RETURN(options.attributes.scale, node.FloatAttribute("scale", 0));
  }
  return PagedAttentionBody(options).Text();
}

}  // namespace

OpDef TurboQuantAttentionDef() {
  using enum DataType;
  OpDef op("pagefuse", "TurboQuantAttention", 1);
  op.Doc("Causal attention of packed query tokens over their sequences' TurboQuant slots.")
      .Inputs(kIn)
      .Outputs(kOut);
  return AddTurboQuantBits(op)
      .FlagAttr("norm_correction", int64_t{0},
                "1: vectors of centroids are divided by their length")
      .Attr("scale", std::monostate(), "factor of the scores; 1/sqrt(D) if absent")
      .ReachAttr("sliding_window", 0,
                 "W > 0: number of visible keys, the token's own included; 0: none")
      .AtLeast(0)
      .Attr("softcap", 0.0f, "c > 0: scores become c * tanh(score / c)")
      .Attr("num_kv_splits_hint", int64_t{0}, "performance only")
      .Attr("nan_value", std::monostate(), kNanValueDoc)
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("TS", {kFloat, kFloat16, kBfloat16})
      .Let("slot_bytes", "bytes of a slot, by D, key_bits and value_bits",
           SlotBytes("D", kIn["query"]))
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "hwy", .priority = 10, .run = Hwy});
}

}  // namespace pagefuse::pagefuse_ops
