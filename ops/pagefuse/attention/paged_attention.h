// PagedAttention: attention of packed query tokens over their sequences' paged keys and values.
// Ports, attributes and checks, shared by shape inference, validation, decomposition and kernels.
//
// T tokens, B sequences, Hq query heads, Hk KV heads (query head h reads KV head h div (Hq / Hk)),
// D head size, NB blocks of BS tokens, M block-table columns. Caches are dense [NB, BS, Hk, D]
// (int4: D/2 bytes a row). The meaning is that of vLLM's unified_attention; split-KV and merging by
// log-sum-exp follow Flash-Decoding and FlashInfer (arXiv 2501.01005, section 2.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/op_def.h"

namespace pagefuse {

enum PagedAttentionInput {
  kPaQuery,          // [T, Hq, D]
  kPaKeyCache,       // [NB, BS, Hk, D]
  kPaValueCache,     // [NB, BS, Hk, D]
  kPaQueryStartLoc,  // [B + 1]
  kPaSeqLens,        // [B]
  kPaBlockTable,     // [B, M]
  kPaKScale,         // [] or [1]
  kPaVScale,         // [] or [1]
  kPaQScale,         // [] or [1]
  kPaKScaleCache,    // [NB, BS, Hk]
  kPaVScaleCache,    // [NB, BS, Hk]
  kPaHeadSink,       // [Hq]
  kPaAlibiSlopes,    // [Hq]
  kPaQqBias,         // [Mq, Mq]
  kPaMmPrefixRange,  // [B, R, 2]
  kPaCausalFlags,    // [B]
  kPaOutputScale,    // [] or [1]
  kPaRhtSigns,       // [D]
  kPaNumInputs,
};

// Where an op over a paged cache has its batch; -1: not among its inputs.
struct PagedBatchPorts {
  int query_start_loc;
  int seq_lens;
  int block_table;
};
inline constexpr PagedBatchPorts kPagedAttentionBatch = {kPaQueryStartLoc, kPaSeqLens,
                                                         kPaBlockTable};
// Checks ranks and that all have as many sequences.
absl::Status CheckPagedBatch(const ShapeContext& context, const PagedBatchPorts& ports);

struct PagedAttentionAttributes {
  std::optional<float> scale;  // absent: 1 / sqrt(D)
  bool is_causal = true;
  int64_t sliding_window =
      0;              // 0: none; else the number of visible keys, the token itself included
  float softcap = 0;  // 0: none
  int64_t chunk_lookback = -1;
  bool use_alibi_sqrt = false;
  bool mm_prefix_clamp_window = false;
  KvQuantMode mode = KvQuantMode::kNone;
  DataType output_dtype = DataType::kUndefined;  // undefined: the type of query
  bool query_is_f8_twin = false;                 // a uint8 query holds float8e4m3fn codes

  // Tokens in a chunk, 0 where chunks are off.
  int64_t chunk_size() const {
    return chunk_lookback >= 0 && sliding_window > 0 ? sliding_window / (chunk_lookback + 1) : 0;
  }
  // C: what `query_type` means.
  DataType ComputeType(DataType query_type) const;
  bool has_row_scales() const { return CacheFormat{.mode = mode}.has_row_scales(); }
  // Without output_dtype: float8e4m3fn if there is an output_scale, else the type of query.
  DataType OutputType(DataType query_type, bool has_output_scale) const;
};

// Reads and checks the attributes. InvalidArgument naming node and attribute.
absl::StatusOr<PagedAttentionAttributes> ParsePagedAttention(const Node& node);

// Types and shapes; every check that needs no values.
absl::Status InferPagedAttention(ShapeContext& context);
// Checks of values: InvalidArgument, or OutOfRange for a block id.
absl::Status ValidatePagedAttention(const KernelArgs& args);

absl::StatusOr<DecompositionVariant> DecomposePagedAttention(const Node& node);
// One for each (cache mode, window, soft cap, sink) and type of the query, causal.
std::vector<DecompositionVariant> PagedAttentionVariants();

absl::Status PagedAttentionReference(KernelArgs& args);

}  // namespace pagefuse
