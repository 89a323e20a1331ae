// SPDX-License-Identifier: Apache-2.0
// PagedAttention: attention of packed query tokens over their sequences' paged keys and values.
// Ports, attributes and checks, shared by shape inference, validation, decomposition and kernels.
//
// T tokens, B sequences, Hq query heads, Hk KV heads (query head h reads KV head h div (Hq / Hk)),
// D head size, NB blocks of BS tokens, M block-table columns. Caches are dense [NB, BS, Hk, D]
// (int4: D/2 bytes a row). The meaning is that of vLLM's unified_attention; split-KV and merging by
// log-sum-exp follow Flash-Decoding and FlashInfer (arXiv 2501.01005, section 2.2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

inline constexpr Ports kPagedAttentionIn({
    {"query", "TQ", "[T, Hq, D], D >= 1, Hq % Hk = 0"},
    PortSpec("key_cache", "TC", "[NB, BS, Hk, row], BS >= 1, Hk >= 1").InBlocks(),
    PortSpec("value_cache", "TC", "as key_cache").InBlocks(),
    PortSpec("query_start_loc", "int32", "[B + 1]").Metadata(),
    PortSpec("seq_lens", "int32", "[B]").Metadata(),
    PortSpec("block_table", "int32", "[B, M]").Metadata(),
    PortSpec("k_scale", "float", "[] or [1]").Optional(),
    PortSpec("v_scale", "float", "[] or [1]").Optional(),
    PortSpec("q_scale", "float", "[] or [1]").Optional(),
    PortSpec("k_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
    PortSpec("v_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
    PortSpec("head_sink", "TS", "[Hq]").Optional(),
    PortSpec("alibi_slopes", "float", "[Hq]").Optional(),
    PortSpec("qq_bias", "float", "[Mq, Mq]").Optional(),
    PortSpec("mm_prefix_range", "int32", "[B, R, 2]").Optional().Metadata(),
    PortSpec("causal_flags", "bool", "[B]").Optional().Metadata(),
    PortSpec("output_scale", "float", "[] or [1]").Optional(),
    PortSpec("rht_signs", "float", "[D]").Optional(),
});
inline constexpr Ports kPagedAttentionOut({
    {"output", "TO", "[T, Hq, D]"},
    PortSpec("lse", "float", "[Hq, T]").Optional(),
});
inline constexpr int kPaQuery = kPagedAttentionIn["query"];
inline constexpr int kPaKeyCache = kPagedAttentionIn["key_cache"];

struct PagedAttentionAttributes : AttentionRules {
  std::optional<float> scale;                    // absent: 1 / sqrt(D)
  CacheFormat format;                            // without the type of the cache
  DataType output_dtype = DataType::kUndefined;  // undefined: the type of query
  bool query_is_f8_twin = false;                 // a uint8 query holds float8e4m3fn codes

  // C: what `query_type` means.
  DataType ComputeType(DataType query_type) const;
  // Without output_dtype: float8e4m3fn if there is an output_scale, else the type of query.
  DataType OutputType(DataType query_type, bool has_output_scale) const;
};

inline constexpr std::string_view kNanValueDoc =
    "what stands in output in place of NaN; absent: NaN stays";
// Reads `nan_value`, which TurboQuantAttention has too. A number of the output: no output_scale
// divides it.
absl::Status ReadNanValue(const Node& node, AttentionRules& rules);

// Reads and checks the attributes. InvalidArgument naming node and attribute.
absl::StatusOr<PagedAttentionAttributes> ParsePagedAttention(const Node& node);

// What attributes say of types and of ports that must be given, and the type of the output.
absl::Status InferPagedAttention(ShapeContext& context);
// Checks of values: InvalidArgument, or OutOfRange for a block id.
absl::Status ValidatePagedAttention(const KernelArgs& args);

absl::StatusOr<std::string> DecomposePagedAttention(const Node& node);

}  // namespace pagefuse
