// SPDX-License-Identifier: Apache-2.0
// The ports of PagedCacheInsert.
#pragma once

#include "pagefuse/ops/schema/port.h"

namespace pagefuse {

inline constexpr Ports kPagedCacheInsertIn({
    {"key", "T", "[T', Hk, D]"},
    {"value", "T", "[T', Hk, Dv]"},
    PortSpec("key_cache", "C", "[NB, BS, Hk, key_row]").InBlocks(),
    PortSpec("value_cache", "C", "[NB, BS, Hk, value_row]").InBlocks(),
    PortSpec("slot_mapping", "I", "[T], T <= T'").Metadata(),
    PortSpec("k_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("v_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("k_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
    PortSpec("v_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
    PortSpec("rht_signs", "float", "[D], D = Dv").Optional(),
});
inline constexpr Ports kPagedCacheInsertOut({
    {"key_cache_out", "C", "as key_cache"},
    {"value_cache_out", "C", "as value_cache"},
    PortSpec("k_scale_cache_out", "float", "as k_scale_cache").Optional(),
    PortSpec("v_scale_cache_out", "float", "as v_scale_cache").Optional(),
});

}  // namespace pagefuse
