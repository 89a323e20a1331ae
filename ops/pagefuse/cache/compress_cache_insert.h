// SPDX-License-Identifier: Apache-2.0
// What the parts of CompressCacheInsert share: ports and attributes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/compress_cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kCcIn({
    PortSpec("state_cache", "float", "[NS, BS, 2 * W]").InBlocks(),
    PortSpec("token_to_req", "int32", "[T]").Metadata(),
    PortSpec("positions", "P", "[T]").Metadata(),
    PortSpec("slot_mapping", "I", "[T]: of the state; only the sign matters").Metadata(),
    PortSpec("block_table", "int32", "[Q, MB]: of the state").Metadata(),
    {"rms_weight", "N", "[D]"},
    PortSpec("cos_sin", "R",
             "[P, R], R % 2 = 0, R <= D, P >= table_rows: R/2 cosines, then R/2 sines")
        .Metadata(),
    PortSpec("kv_slot_mapping", "K", "[T]: slots of compressed rows").Metadata(),
    PortSpec(
        "kv_cache", "TC if format = none, bfloat16 if format = bf16, else uint8",
        "[NB, KBS, D] if format = none, [NB, KBS, D] if format = bf16, else [NB, ...]: of codes, "
        "kv_block_size * row_bytes bytes a block or more, in any dims")
        .InBlocks(),
});
inline constexpr Ports kCcOut({{"kv_cache_out",
                                "TC if format = none, bfloat16 if format = bf16, else uint8",
                                "as kv_cache"}});
inline constexpr int64_t kCcGroupSize = 64;
inline constexpr float kCcEpsilon = 1e-6f;

struct CompressAttributes {
  std::string format;  // "none", "bf16", "fp8_ue8m0", "indexer_fp8", "indexer_mxfp4"
  CompressWindow window;
  int64_t kv_block_size = kTokensPerBlock;
  int64_t quant_group_size = kCcGroupSize;
  bool cos_sin_rows = false;
  bool hadamard = false;
  float eps = kCcEpsilon;

  // Rows of numbers, without codes.
  bool is_plain() const;
  bool holds_index_keys() const { return format == "indexer_fp8" || format == "indexer_mxfp4"; }
  // The format of a compressed row of `size` elements, the last `rotated` of which are rotated; a
  // format of codes. InvalidArgument where it has none for them.
  absl::StatusOr<GroupedRowFormat> RowFormat(int64_t size, int64_t rotated) const;
  // Of the cosine table, for the token whose window ends at `position`.
  int64_t TableRow(int64_t token, int64_t position) const {
    return cos_sin_rows ? token : position / window.ratio * window.ratio;
  }
};
// Of checked attributes.
absl::StatusOr<CompressAttributes> ReadCompress(const Node& node);

absl::StatusOr<std::string> DecomposeCompressCacheInsert(const Node& node);

}  // namespace pagefuse::pagefuse_ops
