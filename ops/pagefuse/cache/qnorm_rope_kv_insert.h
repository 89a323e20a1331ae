// SPDX-License-Identifier: Apache-2.0
// The ports of QNormRopeKvInsert, for the passes that choose the format of its cache.
#pragma once

#include "pagefuse/ops/schema/port.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kQnIn({
    {"q", "T", "[N, H, D], H <= Hp"},
    {"kv", "T", "[N, D]"},
    PortSpec("kv_cache",
             "uint8 if format = fp8_ue8m0, T if format = none, bfloat16 if format = bf16, else F",
             "[NB, S] if format = fp8_ue8m0, else [NB, BS, D], S >= block_size * row_bytes")
        .InBlocks(),
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

}  // namespace pagefuse::pagefuse_ops
