// What the parts of CompressCacheInsert share: ports, attributes, and the call in parsed form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/grouped_row.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/rope_row.h"

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
  int64_t ratio = 1;
  int64_t overlap = 0;  // 1: a window reaches back over the one before it
  int64_t kv_block_size = kCcBlockSize;
  float eps = kCcEpsilon;

  int64_t WindowRows() const { return (1 + overlap) * ratio; }
  // The format of a compressed row of `size` elements. InvalidArgument where the format has none.
  absl::StatusOr<GroupedRowFormat> RowFormat(int64_t size) const;
};
// Of checked attributes.
absl::StatusOr<CompressAttributes> ReadCompress(const Node& node);

// One call with checked arguments. A state row is kv[0, half) | score[0, half).
struct CompressCall {
  CompressAttributes attributes;
  GroupedRowFormat format;
  int64_t size = 0;  // D
  int64_t half = 0;  // W
  std::vector<SlotWrite> writes;
  std::vector<int64_t> absent;  // [writes]: rows of the window before position 0
  // The state rows of each write's window, those that are present, one write after the other.
  std::vector<const float*> state_rows;
  std::vector<size_t> first_row;    // [writes]: where they start
  std::vector<int64_t> table_rows;  // [writes]: row of the cosine table
  std::vector<float> weight;        // [D]
  RopeLayout layout;
  CosSinTable table;
  CacheRows rows;

  // The present rows of a window: row absent[write] + j of it is Window(write)[j].
  std::span<const float* const> Window(int64_t write) const {
    const size_t count =
        static_cast<size_t>(attributes.WindowRows() - absent[static_cast<size_t>(write)]);
    return {state_rows.data() + first_row[static_cast<size_t>(write)], count};
  }
  // First column of window row i: with overlap the newer half of a window has columns of its own.
  int64_t Column(int64_t i) const {
    return attributes.overlap == 1 && i >= attributes.ratio ? size : 0;
  }
};

// Columns that a thread sums at a time.
inline constexpr int64_t kCompressColumns = 64;

// The plain way; and the same, vectorised and parallel, but for the order of sums and the last
// digit of e^x.
void CompressCacheInsertPlain(const CompressCall& call);
void CompressCacheInsertHwy(const CompressCall& call);

absl::StatusOr<DecompositionVariant> DecomposeCompressCacheInsert(const Node& node);
std::vector<DecompositionVariant> CompressCacheInsertVariants();

}  // namespace pagefuse::pagefuse_ops
