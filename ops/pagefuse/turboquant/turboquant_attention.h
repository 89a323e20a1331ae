// SPDX-License-Identifier: Apache-2.0
// TurboQuantAttention's ports, for whoever makes a node of it.
#pragma once

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

inline constexpr Ports kTurboQuantAttentionIn({
    {"query", "T", "[T, Hq, D], Hq % Hk = 0"},
    PortSpec("kv_cache", "uint8", "[NB, BS, Hk, S], BS >= 1, Hk >= 1, S >= slot_bytes, S % 2 = 0")
        .InBlocks(),
    PortSpec("block_table", "int32", "[B, M] if query_start_loc, else [T, M]").Metadata(),
    PortSpec("seq_lens", "int32", "[B] if query_start_loc, else [T]").Metadata(),
    PortSpec("query_start_loc", "int32", "[B + 1]: without it, a token each").Optional().Metadata(),
    PortSpec("rotation", "float", "[D, D]").Optional(),
    PortSpec("centroids", "float", "[2^key_bits]").Optional(),
    PortSpec("head_sink", "TS", "[Hq]").Optional(),
});
inline constexpr Ports kTurboQuantAttentionOut({
    {"output", "T", "[T, Hq, D]"},
    PortSpec("lse", "float", "[Hq, T]").Optional(),
});

}  // namespace pagefuse
