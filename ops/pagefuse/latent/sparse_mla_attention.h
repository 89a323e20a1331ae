// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention: multi-query attention of packed query tokens over listed rows of a latent
// cache, whose rows are keys and (their first elements) values. Ports, attributes and checks,
// shared by shape inference, validation, decomposition and kernels.
//
// T tokens, H query heads, D elements of a row, K listed rows a token. Which rows a token sees is
// told in one of two ways:
//
//   listed  `indices` [T, K]: row numbers (slots), negative ones are none; `topk_lens` [T] cuts the
//           lists. A second cache of the same format may follow (extra_*). A row listed twice
//           counts twice, rows that are not listed are never read.
//   dense   no `indices`; `block_table`, `seq_lens` and `query_start_loc` as PagedAttention has
//           them: the rows of the token's sequence up to its own (is_causal = 0: all of them).
//
// Caches: format "bf16" is a tensor [..., D] of bfloat16 (or float, float16, taken as they are),
// its leading dims the rows; "fp8_ds_mla" uint8 [..., 656]; "fp8_ue8m0" uint8 [blocks, S] with
// block_size tokens a block. See kernels/formats/grouped_row.h. In the dense case a cache has its
// blocks in the first dim, and the tokens of a block in the dims between the first and the last.
// The numbers are those of the published sizes, rows of 576 and of 512 elements; others follow from
// D, rope_size and quant_group_size.
//
// Sources: DeepSeek-V3.2 and V4 (FlashMLA's flash_mla_sparse_prefill and flash_mla_with_kvcache).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

inline constexpr Ports kSparseMlaIn({
    {"q", "TQ", "[T, H, D], D >= 1, D >= tail, (D - tail) % group = 0, head_dim_v <= D"},
    PortSpec("kv_cache", "TC if format = bf16, else uint8",
             "[NB, S] if format = fp8_ue8m0, [NB, ..., row_bytes] if format = fp8_ds_mla, "
             "else [NB, ..., D], S >= block_size * row_bytes")
        .InBlocks(),
    PortSpec("indices", "int32", "[T, K]").Optional().Metadata(),
    PortSpec("topk_lens", "int32", "[T]").OnlyIf("indices").Metadata(),
    PortSpec("attn_sink", "float", "[H]").Optional(),
    PortSpec("extra_kv_cache", "TC if format = bf16, else uint8",
             "[NB', S'] if format = fp8_ue8m0, [NB', ...', row_bytes] if format = fp8_ds_mla, "
             "else [NB', ...', D], S' >= extra_block_size * row_bytes")
        .InBlocks()
        .RequiredIf("extra_indices")
        .OnlyIf("indices"),
    PortSpec("extra_indices", "int32", "[T, K']")
        .RequiredIf("extra_kv_cache")
        .OnlyIf("indices")
        .Metadata(),
    PortSpec("extra_topk_lens", "int32", "[T]").OnlyIf("extra_indices").Metadata(),
    PortSpec("block_table", "int32", "[B, M]").ExactlyIf("not indices").Metadata(),
    PortSpec("seq_lens", "int32", "[B]").ExactlyIf("not indices").Metadata(),
    PortSpec("query_start_loc", "int32", "[B + 1]").ExactlyIf("not indices").Metadata(),
});
inline constexpr Ports kSparseMlaOut({
    {"out", "TQ", "[T, H, head_dim_v]"},
    PortSpec("lse", "float", "[T, H]").Optional(),
});

// Inputs of a list: the cache, its rows, and how many of these count.
struct LatentListPorts {
  int cache, indices, lens;
};
inline constexpr LatentListPorts kLatentLists[] = {
    {kSparseMlaIn["kv_cache"], kSparseMlaIn["indices"], kSparseMlaIn["topk_lens"]},
    {kSparseMlaIn["extra_kv_cache"], kSparseMlaIn["extra_indices"],
     kSparseMlaIn["extra_topk_lens"]}};

// The values of the attribute `format`.
enum class LatentFormat { kPlain, kFp8DsMla, kFp8Ue8m0 };

struct SparseMlaAttributes {
  LatentFormat format = LatentFormat::kPlain;
  int64_t rope_size = 64;        // elements of a row that have no codes, in the uint8 formats
  int64_t quant_group_size = 0;  // elements with one scale; 0: that of the published format
  float scale = 1;
  int64_t head_dim_v = 512;
  int64_t block_size = 64;  // fp8_ue8m0; the other formats have it in the shape
  int64_t extra_block_size = 64;
  bool is_causal = true;  // dense

  int64_t group_size() const;
  // How rows of `size` elements lie in memory in the uint8 formats.
  GroupedRowFormat grouped(int64_t size) const;
};

// Of checked attributes.
absl::StatusOr<SparseMlaAttributes> ReadSparseMla(const Node& node);

// The rows of a list's cache.
CacheRows LatentRowsOf(const KernelArgs& args, const SparseMlaAttributes& a,
                       const LatentListPorts& ports);

// Checks of values: OutOfRange for rows and blocks outside of a cache, InvalidArgument for others.
absl::Status ValidateSparseMla(const KernelArgs& args);

absl::StatusOr<std::string> DecomposeSparseMla(const Node& node);

absl::Status SparseMlaReference(KernelArgs& args);
absl::Status SparseMlaHwy(KernelArgs& args);

}  // namespace pagefuse
