// What the parts of QNormRopeKvInsert share: ports and attributes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/inserts/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kQnIn({
    {"q", "T", "[N, H, D], H <= Hp"},
    {"kv", "T", "[N, D]"},
    {"kv_cache",
     "uint8 if format = fp8_ue8m0, T if format = none, bfloat16 if format = bf16, else F",
     "[NB, S] if format = fp8_ue8m0, else [NB, BS, D], S >= block_size * row_bytes"},
    PortSpec("slot_mapping", "I", "[N'], N' <= N").Metadata(),
    PortSpec("positions", "P", "[N]").Metadata(),
    PortSpec("cos_sin", "R",
             "[P, R], R % 2 = 0, R <= D, (D - R) % group = 0: R/2 cosines, then R/2 sines")
        .Metadata(),
    PortSpec("kv_scale", "float", "[] or [1]").RequiredIf("format = fp8"),
    PortSpec("q_scale_inv", "float", "[] or [1]").RequiredIf("format = fp8"),
});
inline constexpr Ports kQnOut({
    {"q_out", "fp8_storage if format = fp8, else T", "[N, Hp, D]"},
    {"kv_cache_out",
     "uint8 if format = fp8_ue8m0, T if format = none, bfloat16 if format = bf16, else F",
     "as kv_cache"},
});
inline constexpr int64_t kQnBlockSize = 64;
inline constexpr int64_t kQnGroupSize = 64;
inline constexpr float kQnEpsilon = 1e-6f;

// The attribute `format`.
absl::StatusOr<QNormFormat> ParseQNormFormat(const Node& node);

absl::StatusOr<std::string> DecomposeQNormRopeKvInsert(const Node& node);

}  // namespace pagefuse::pagefuse_ops
