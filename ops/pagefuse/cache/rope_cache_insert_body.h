// Ports of RopeCacheInsert and its decomposition.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ops/pagefuse/cache/cache_insert.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kRopeIn({
    {"query", "T", "[T, Hq, D], R % 2 = 0, R + rotary_offset <= D"},
    {"key", "T", "[T', Hk, D], T' >= T"},
    {"value", "T", "[T', Hk, Dv]"},
    {"key_cache", "C", "[NB, BS, Hk, D]"},
    {"value_cache", "C", "[NB, BS, Hk, Dv]"},
    PortSpec("slot_mapping", "I", "[T]").Metadata(),
    PortSpec("positions", "P", "[T]").Optional().Metadata(),
    PortSpec("cos", "R", "[P, R/2] if positions, else [T, R/2]").Metadata(),
    PortSpec("sin", "R", "as cos").Metadata(),
    PortSpec("q_norm_weight", "W", "[D]").RequiredIf("k_norm_weight"),
    PortSpec("k_norm_weight", "W", "[D]").RequiredIf("q_norm_weight"),
    PortSpec("k_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("v_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("k_scale_cache", "float", "[NB, BS, Hk]").Optional(),
    PortSpec("v_scale_cache", "float", "[NB, BS, Hk]").Optional(),
});
inline constexpr Ports kRopeOut({
    {"query_out", "T", "[T, Hq, D]"},
    {"key_cache_out", "C", "as key_cache"},
    {"value_cache_out", "C", "as value_cache"},
    PortSpec("k_scale_cache_out", "float", "as k_scale_cache").Optional(),
    PortSpec("v_scale_cache_out", "float", "as v_scale_cache").Optional(),
});
inline constexpr CacheInsertPorts kRopePorts = CacheInsertPortsOf(kRopeIn, kRopeOut);
inline constexpr float kRopeEpsilon = 1e-6f;

// RMSNormalization (with norm weights), RotaryEmbedding and the nodes of PagedCacheInsert, in
// float.
absl::StatusOr<std::string> RopeCacheInsertBody(const Node& node);

}  // namespace pagefuse::pagefuse_ops
