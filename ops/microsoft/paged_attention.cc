// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/paged_attention.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/gqa_parts.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {

absl::StatusOr<MsPagedLayout> MsPagedLayoutOf(const Node& node) {
  MsPagedLayout layout;
  PF_ASSIGN_OR_RETURN(layout.v_size, node.IntAttribute("v_head_size", 0));
  PF_ASSIGN_OR_RETURN(layout.rotary_offset, node.IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("kv_cache_layout", "SEPARATE"));
  if (name != "SEPARATE" && name != "LATENT") {
    return AttributeError(node, "kv_cache_layout",
                          StrCat("expected SEPARATE or LATENT, got \"", name, "\""));
  }
  layout.latent = name == "LATENT";
  return layout;
}

absl::StatusOr<MsPagedCall> MsPagedCallOf(const KernelArgs& args) {
  MsPagedCall call;
  PF_ASSIGN_OR_RETURN(call.attributes, GqaAttributesOf(*args.node));
  PF_ASSIGN_OR_RETURN(const MsPagedLayout layout, MsPagedLayoutOf(*args.node));
  const GqaAttributes& a = call.attributes;
  const TensorArg& query = args.input(kMspQuery);
  const TensorArg& cache = args.input(kMspKeyCache);
  call.packed = !args.input(kMspKey).present();
  call.latent = !call.packed && !args.input(kMspValue).present();
  call.rotary_offset = layout.rotary_offset;
  call.tokens = query.dims[0];
  call.batch = args.input(kMspPast).dims[0];
  call.head_size = query.dims[1] / (a.q_heads + (call.packed ? 2 * a.kv_heads : 0));
  call.v_size = layout.v_size > 0 ? layout.v_size : call.head_size;
  call.num_blocks = cache.dims[0];
  call.block_size = cache.dims[1];
  call.table_columns = args.input(kMspBlockTable).dims[1];
  call.cumulative = args.input(kMspCumulative).as<int32_t>();
  call.past = args.input(kMspPast).as<int32_t>();
  call.table = args.input(kMspBlockTable).as<int32_t>();
  call.slots = args.input(kMspSlots).as<int32_t>();
  return call;
}

absl::StatusOr<ScaledRows> MsPagedRows(const KernelArgs& args, const MsPagedCall& call, bool keys) {
  const GqaAttributes& a = call.attributes;
  ScaledRows rows;
  rows.head_size = call.head_size;
  rows.element = args.input(keys ? kMspKeyCache : kMspValueCache).dtype;
  return WithScales(std::move(rows), args, keys ? a.k_scales : a.v_scales, a.bits,
                    keys ? kMspKScale : kMspVScale);
}

OpDef PagedAttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  constexpr PortRole kMetadata = PortRole::kMetadata;
  OpDef op("com.microsoft", "PagedAttention", /*since=*/1);
  op.Doc(
        "Writes the keys and values of packed new tokens into caches of blocks and lets the tokens "
        "attend to their sequences. Norm, rotation and quantisation of what is cached are inside. "
        "A token sees the cache as it was before the call, then the new tokens.")
      .Input("query", "T", "[T, H * D]; [T, (H + 2 Hk) * D] without key and value")
      .Input("key", "T", "[T, Hk * D]", kOptional)
      .Input("value", "T", "[T, Hk * D]; absent beside a key: LATENT", kOptional)
      .Input("key_cache", "TC", "[NB, BS, Hk, D]; 4-bit: D / 2 bytes")
      .Input("value_cache", "TC", "as key_cache; absent: LATENT", kOptional)
      .Input("cumulative_sequence_length", "int32", "[B + 1]: first token of each sequence",
             PortKind::kRequired, kMetadata)
      .Input("past_seqlens", "int32", "[B]: tokens of each sequence before these",
             PortKind::kRequired, kMetadata)
      .Input("block_table", "int32", "[B, M]: the block of every BS tokens, -1: none, not seen",
             PortKind::kRequired, kMetadata)
      .Input("cos_cache", "T", "[positions, R / 2]", kOptional)
      .Input("sin_cache", "T", "[positions, R / 2]", kOptional)
      .Input("slot_mapping", "int32",
             "[T]: block * BS + row that a token is written to, in place of the table's; -1: it is "
             "not written, and what the cache holds there is read",
             kOptional, kMetadata)
      .Input("head_sink", "T", "[H]: a score that takes probability and has no value", kOptional)
      .Input("q_norm_weight", "T", "[D]", kOptional)
      .Input("k_norm_weight", "T", "[D]", kOptional)
      .Input("k_scale", "float", "[1], or [Hk, 1, D]", kOptional)
      .Input("v_scale", "float", "[1], or [Hk, 1, D]", kOptional)
      .Input("attention_metadata", "int32", "[3]: a hint", kOptional, kMetadata)
      .Output("output", "T", "[T, H * Dv]")
      .Output("key_cache_out", "TC", "key_cache, updated", kOptional)
      .Output("value_cache_out", "TC", "value_cache, updated", kOptional);
  op.RequiredAttr("num_heads", "H")
      .RequiredAttr("kv_num_heads", "Hk; query head h reads key head h div (H / Hk)")
      .Attr("scale", 0.0f, "factor of the scores, 0: 1 / sqrt(D); required where Dv is not D")
      .Attr("softcap", 0.0f, "c > 0: scores become c * tanh(score / c)")
      .ReachAttr("local_window_size", -1, "keys that a token sees, its own included; -1: all")
      .FlagAttr("do_rotary", int64_t{0}, "1: query and key are rotated by the caches")
      .FlagAttr("rotary_interleaved", int64_t{0}, "1: rotated pairs are neighbours")
      .Attr("rotary_offset", int64_t{0}, "first rotated channel")
      .Attr("smooth_softmax", int64_t{0}, "1: a sink of score 0 where head_sink is absent")
      .Attr("qk_norm_epsilon", 1e-6f, "of the norm with q_norm_weight and k_norm_weight")
      .Attr("kv_cache_layout", std::string("SEPARATE"),
            "SEPARATE, or LATENT: values are the first Dv channels of keys")
      .Attr("v_head_size", int64_t{0}, "Dv, 0: D")
      .Attr("k_quant_type", std::string("NONE"), "NONE, PER_TENSOR or PER_CHANNEL")
      .Attr("v_quant_type", std::string("NONE"), "NONE, PER_TENSOR or PER_CHANNEL")
      .Attr("kv_cache_bit_width", int64_t{0}, "of a cache with scales: 8 or 4");
  return op.Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16, kInt8, kUint8, kFloat8E4M3FN})
      .InferShapes(InferMsPaged)
      .Validate(ValidateMsPaged)
      .AddKernel({.name = "reference", .run = MsPagedReference})
      .AddKernel({.name = "hwy", .priority = 10, .run = MsPagedHwy})
      .Alias(1, kMspKeyCache)
      .Alias(2, kMspValueCache);
}

}  // namespace pagefuse::microsoft_ops
