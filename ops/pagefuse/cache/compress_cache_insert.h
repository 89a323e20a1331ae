// What the parts of CompressCacheInsert share: ports and attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/kernels/formats/grouped_row.h"
#include "pagefuse/kernels/inserts/compress_cache_insert.h"
#include "pagefuse/ops/op_def.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kCcIn({
    {"state_cache", "float", "[NS, BS, 2 * W]"},
    PortSpec("token_to_req", "int32", "[T]").Metadata(),
    PortSpec("positions", "P", "[T]").Metadata(),
    PortSpec("slot_mapping", "I", "[T]: of the state; only the sign matters").Metadata(),
    PortSpec("block_table", "int32", "[Q, MB]: of the state").Metadata(),
    {"rms_weight", "N", "[D]"},
    PortSpec("cos_sin", "R", "[P, R], R % 2 = 0, R <= D: R/2 cosines, then R/2 sines").Metadata(),
    PortSpec("kv_slot_mapping", "K", "[T]: slots of compressed rows").Metadata(),
    {"kv_cache", "uint8", "[NB, S], S >= kv_block_size * row_bytes"},
});
inline constexpr Ports kCcOut({{"kv_cache_out", "uint8", "as kv_cache"}});
inline constexpr int64_t kCcBlockSize = 64;
inline constexpr float kCcEpsilon = 1e-6f;

struct CompressAttributes {
  std::string format;  // "fp8_ue8m0", "indexer_fp8", "indexer_mxfp4"
  CompressWindow window;
  int64_t kv_block_size = kCcBlockSize;
  float eps = kCcEpsilon;

  // The format of a compressed row of `size` elements. InvalidArgument where the format has none.
  absl::StatusOr<GroupedRowFormat> RowFormat(int64_t size) const;
};
// Of checked attributes.
absl::StatusOr<CompressAttributes> ReadCompress(const Node& node);

absl::StatusOr<DecompositionVariant> DecomposeCompressCacheInsert(const Node& node);
std::vector<DecompositionVariant> CompressCacheInsertVariants();

}  // namespace pagefuse::pagefuse_ops
