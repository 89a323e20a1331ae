// What the kernels of QNormRopeKvInsert share: the call in parsed form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/grouped_row.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/rope_row.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kQnIn({
    {"q", "bfloat16", "[N, H, D], D = row, H <= Hp"},
    {"kv", "bfloat16", "[N, D]"},
    {"kv_cache", "uint8 if format = fp8_ue8m0, bfloat16 if format = bf16, else F",
     "[NB, S] if format = fp8_ue8m0, else [NB, BS, D], S >= block_size * 584"},
    PortSpec("slot_mapping", "I", "[N'], N' <= N").Metadata(),
    PortSpec("positions", "P", "[N]").Metadata(),
    PortSpec("cos_sin", "R", "[P, R], R % 2 = 0, R <= D: R/2 cosines, then R/2 sines").Metadata(),
    PortSpec("kv_scale", "float", "[] or [1]").RequiredIf("format = fp8"),
    PortSpec("q_scale_inv", "float", "[] or [1]").RequiredIf("format = fp8"),
});
inline constexpr Ports kQnOut({
    {"q_out", "fp8_storage if format = fp8, else bfloat16", "[N, Hp, D]"},
    {"kv_cache_out", "uint8 if format = fp8_ue8m0, bfloat16 if format = bf16, else F",
     "as kv_cache"},
});
inline constexpr int64_t kQnBlockSize = 64;
inline constexpr float kQnEpsilon = 1e-6f;

// The values of the attribute `format`.
enum class QNormFormat {
  kFp8Ue8m0,  // "fp8_ue8m0": grouped rows, bfloat16 query
  kBf16,      // "bf16": bfloat16 rows, bfloat16 query
  kFp8,       // "fp8": e4m3fn rows and query, each under one scale
};
absl::StatusOr<QNormFormat> ParseQNormFormat(const Node& node);

// One call with checked arguments.
struct QNormCall {
  QNormFormat format = QNormFormat::kFp8Ue8m0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t padded_heads = 0;  // of the output; those past `heads` are zero
  int64_t size = 0;
  float epsilon = 0;
  RopeLayout layout;
  CosSinTable table;
  TensorArg positions;
  const uint8_t* query = nullptr;  // bfloat16 [tokens, heads, size]
  const uint8_t* kv = nullptr;     // bfloat16 [tokens, size]
  uint8_t* query_out = nullptr;    // [tokens, padded_heads, size], bfloat16 or e4m3fn
  float query_factor = 1.0f;       // fp8: code of x * query_factor
  float kv_factor = 1.0f;          // fp8: code of v * kv_factor
  CacheRows rows;
  std::vector<int64_t> slots;  // of each token; -1: not written

  GroupedRowFormat RowFormat() const { return Fp8Ue8m0Row(); }
  int64_t QueryOutBytes() const { return format == QNormFormat::kFp8 ? size : 2 * size; }
};

// The plain way; and the same, vectorised, parallel over rows, but for the order of the norm's sum.
void QNormRopeKvInsertPlain(const QNormCall& call);
void QNormRopeKvInsertHwy(const QNormCall& call);

absl::StatusOr<DecompositionVariant> DecomposeQNormRopeKvInsert(const Node& node);
std::vector<DecompositionVariant> QNormRopeKvInsertVariants();

}  // namespace pagefuse::pagefuse_ops
