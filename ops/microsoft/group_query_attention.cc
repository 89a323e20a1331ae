// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/group_query_attention.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/microsoft/gqa_parts.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

absl::StatusOr<KvScales> ScalesOf(const Node& node, std::string_view name) {
  PF_ASSIGN_OR_RETURN(const std::string value, node.StringAttribute(name, "NONE"));
  if (value == "NONE") return KvScales::kNone;
  if (value == "PER_TENSOR") return KvScales::kPerTensor;
  if (value == "PER_CHANNEL") return KvScales::kPerChannel;
  return AttributeError(node, name,
                        StrCat("expected NONE, PER_TENSOR or PER_CHANNEL, got \"", value, "\""));
}

absl::Status CheckHeads(const Node& node, const GqaAttributes& a) {
  if (a.q_heads <= 0 || a.q_heads > kMaxHeads) {
    return AttributeError(node, "num_heads", StrCat("expected a positive number, got ", a.q_heads));
  }
  if (a.kv_heads > 0 && a.q_heads % a.kv_heads == 0) return absl::OkStatus();
  return AttributeError(node, "kv_num_heads",
                        StrCat("expected a divisor of ", a.q_heads, ", got ", a.kv_heads));
}

absl::Status CheckCombinations(const Node& node, const GqaAttributes& a) {
  if (a.windowed_cache && a.window <= 0) {
    return AttributeError(node, "sliding_window_cache", "needs a positive local_window_size");
  }
  if (!a.causal && a.window > 0) {
    return AttributeError(node, "local_window_size", "is defined for causal attention only");
  }
  const bool has_scales = a.k_scales != KvScales::kNone || a.v_scales != KvScales::kNone;
  if (has_scales && a.bits != 4 && a.bits != 8) {
    return AttributeError(node, "kv_cache_bit_width", StrCat("expected 4 or 8, got ", a.bits));
  }
  if (!(a.softcap >= 0)) {
    return AttributeError(node, "softcap", StrCat("expected 0 or more, got ", a.softcap));
  }
  PF_ASSIGN_OR_RETURN(const int64_t qk_output, node.IntAttribute("qk_output", 0));
  if (qk_output != 0) return AttributeError(node, "qk_output", "is only supported as 0");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GqaAttributes> GqaAttributesOf(const Node& node) {
  GqaAttributes a;
  const auto flag = [&](std::string_view name, bool otherwise, bool& to) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const int64_t value, node.IntAttribute(name, otherwise ? 1 : 0));
    if (value != 0 && value != 1 && !(name == "smooth_softmax" && value == -1)) {
      return AttributeError(node, name, StrCat("expected 0 or 1, got ", value));
    }
    to = value == 1;
    return absl::OkStatus();
  };
  PF_ASSIGN_OR_RETURN(a.q_heads, node.IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(a.kv_heads, node.IntAttribute("kv_num_heads", 0));
  PF_ASSIGN_OR_RETURN(a.scale, node.FloatAttribute("scale", 0.0f));
  PF_ASSIGN_OR_RETURN(a.softcap, node.FloatAttribute("softcap", 0.0f));
  PF_ASSIGN_OR_RETURN(a.norm_epsilon, node.FloatAttribute("qk_norm_epsilon", 1e-6f));
  PF_ASSIGN_OR_RETURN(const int64_t window, node.IntAttribute("local_window_size", -1));
  a.window = WithinReach(window);
  PF_ASSIGN_OR_RETURN(a.bits, node.IntAttribute("kv_cache_bit_width", 0));
  PF_RETURN_IF_ERROR(flag("causal", true, a.causal));
  PF_RETURN_IF_ERROR(flag("do_rotary", false, a.rotates));
  PF_RETURN_IF_ERROR(flag("rotary_interleaved", false, a.interleaved));
  PF_RETURN_IF_ERROR(flag("smooth_softmax", false, a.smooth_softmax));
  PF_RETURN_IF_ERROR(flag("sliding_window_cache", false, a.windowed_cache));
  PF_ASSIGN_OR_RETURN(a.k_scales, ScalesOf(node, "k_quant_type"));
  PF_ASSIGN_OR_RETURN(a.v_scales, ScalesOf(node, "v_quant_type"));
  PF_RETURN_IF_ERROR(CheckHeads(node, a));
  PF_RETURN_IF_ERROR(CheckCombinations(node, a));
  return a;
}

int64_t WindowedRows(int64_t total, int64_t capacity, int64_t window) {
  if (total <= capacity) return total;
  const int64_t step = std::max<int64_t>(capacity - window + 1, 1);
  return total - step * ((total - capacity + step - 1) / step);
}

absl::StatusOr<GqaCall> GqaCallOf(const KernelArgs& args) {
  GqaCall call;
  PF_ASSIGN_OR_RETURN(call.attributes, GqaAttributesOf(*args.node));
  const GqaAttributes& a = call.attributes;
  const TensorArg& query = args.input(kGqaQuery);
  const TensorArg& key = args.input(kGqaKey);
  call.packed = !key.present();
  call.batch = query.dims[0];
  call.q_len = query.dims[1];
  call.kv_len = call.packed ? call.q_len : key.dims[1];
  call.head_size = query.dims[2] / (a.q_heads + (call.packed ? 2 * a.kv_heads : 0));
  const TensorArg& past = args.input(kGqaPastKey);
  call.past_rows = past.present() ? past.dims[2] : 0;
  const int64_t total = IntAt(args.input(kGqaTotal), 0);
  call.present_rows =
      a.windowed_cache && past.present() ? call.past_rows : std::max(total, call.past_rows);
  // The first call of a sequence: whatever the past holds is not read, shorter sequences are padded
  // on the right.
  const bool prompt = call.kv_len > 0 && call.q_len == total;
  for (int64_t b = 0; b < call.batch; ++b) {
    GqaSequence sequence;
    sequence.total = IntAt(args.input(kGqaSeqlensK), b) + 1;
    const int64_t before = prompt ? 0 : sequence.total - call.kv_len;
    sequence.resident =
        a.windowed_cache ? WindowedRows(before, call.present_rows, a.window) : before;
    sequence.rows = prompt ? sequence.total : sequence.resident + call.kv_len;
    sequence.first = prompt ? 0 : sequence.resident + call.kv_len - call.q_len;
    sequence.position = prompt ? 0 : sequence.total - call.q_len;
    call.sequences.push_back(sequence);
  }
  return call;
}

absl::StatusOr<ScaledRows> GqaRows(const KernelArgs& args, const GqaCall& call, bool keys) {
  const GqaAttributes& a = call.attributes;
  const KvScales kind = keys ? a.k_scales : a.v_scales;
  ScaledRows rows;
  rows.head_size = call.head_size;
  const TensorArg& past = args.input(keys ? kGqaPastKey : kGqaPastValue);
  rows.element = past.present() ? past.dtype : args.input(kGqaQuery).dtype;
  if (kind != KvScales::kNone && !past.present()) {
    rows.element = a.bits == 4 ? DataType::kUint8 : DataType::kInt8;
  }
  return WithScales(std::move(rows), args, kind, a.bits, keys ? kGqaKScale : kGqaVScale);
}

OpDef GroupQueryAttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  constexpr PortRole kMetadata = PortRole::kMetadata;
  OpDef op("com.microsoft", "GroupQueryAttention", /*since=*/1);
  op.Doc(
        "Attention of new tokens over cached and new keys and values, with the norm, rotation and "
        "quantisation of what is cached. Sequences are padded on the right.")
      .Input("query", "T", "[B, S, H * D]; [B, S, (H + 2 Hk) * D] without key and value")
      .Input("key", "T", "[B, S, Hk * D]", kOptional)
      .Input("value", "T", "[B, S, Hk * D]", kOptional)
      .Input("past_key", "TC", "[B, Hk, P, D]; 4-bit: D / 2 bytes", kOptional)
      .Input("past_value", "TC", "[B, Hk, P, D]; 4-bit: D / 2 bytes", kOptional)
      .Input("seqlens_k", "int32", "[B]: tokens of each sequence with the new ones, less one",
             PortKind::kRequired, kMetadata)
      .Input("total_sequence_length", "int32", "[]: of the longest sequence, with the new tokens",
             PortKind::kRequired, kMetadata)
      .Input("cos_cache", "T", "[positions, R / 2]", kOptional)
      .Input("sin_cache", "T", "[positions, R / 2]", kOptional)
      .Input("position_ids", "int64", "[B, S]", kOptional, kMetadata)
      .Input("attention_bias", "T", "[B or 1, H or 1, S, total]", kOptional)
      .Input("head_sink", "T", "[H]: a score that takes probability and has no value", kOptional)
      .Input("k_scale", "float", "[1], or [Hk, 1, D]", kOptional)
      .Input("v_scale", "float", "[1], or [Hk, 1, D]", kOptional)
      .Input("q_norm_weight", "T", "[D]", kOptional)
      .Input("k_norm_weight", "T", "[D]", kOptional)
      .Output("output", "T", "[B, S, H * D]")
      .Output("present_key", "TC", "[B, Hk, max(total, P), D]", kOptional)
      .Output("present_value", "TC", "[B, Hk, max(total, P), D]", kOptional);
  op.RequiredAttr("num_heads", "H")
      .RequiredAttr("kv_num_heads", "Hk; query head h reads key head h div (H / Hk)")
      .Attr("scale", 0.0f, "factor of the scores, 0: 1 / sqrt(D)")
      .Attr("softcap", 0.0f, "c > 0: scores become c * tanh(score / c), before the bias")
      .Attr("causal", int64_t{1}, "0: a token sees later ones too")
      .ReachAttr("local_window_size", -1,
                 "keys that a token sees, its own included; -1: all, 0: none")
      .Attr(
          "sliding_window_cache", int64_t{0},
          "1: P is fixed and the cache keeps the last rows: T tokens are L = T rows up to P, then "
          "T - G * ceil((T - P) / G), G = P - window + 1; rows from L on are zero")
      .Attr("do_rotary", int64_t{0}, "1: query and key are rotated by the caches")
      .Attr("rotary_interleaved", int64_t{0}, "1: rotated pairs are neighbours")
      .Attr("smooth_softmax", int64_t{0}, "1: a sink of score 0 where head_sink is absent")
      .Attr("qk_norm_epsilon", 1e-6f, "of the norm with q_norm_weight and k_norm_weight")
      .Attr("k_quant_type", std::string("NONE"), "NONE, PER_TENSOR or PER_CHANNEL")
      .Attr("v_quant_type", std::string("NONE"), "NONE, PER_TENSOR or PER_CHANNEL")
      .Attr("kv_cache_bit_width", int64_t{0}, "of a cache with scales: 8 or 4")
      .Attr("qk_output", int64_t{0}, "only 0");
  return op.Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16, kInt8, kUint8, kFloat8E4M3FN})
      .InferShapes(InferGqa)
      .Validate(ValidateGqa)
      .AddKernel({.name = "reference", .run = GqaReference})
      .AddKernel({.name = "hwy", .priority = 10, .run = GqaHwy});
}

}  // namespace pagefuse::microsoft_ops
