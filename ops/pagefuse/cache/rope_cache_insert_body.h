// Ports of RopeCacheInsert and its decomposition.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

namespace pagefuse::pagefuse_ops {

inline constexpr int kRopeQuery = 0;
inline constexpr int kRopePositions = 6;
inline constexpr int kRopeCos = 7;
inline constexpr int kRopeSin = 8;
inline constexpr int kRopeQueryNorm = 9;
inline constexpr int kRopeKeyNorm = 10;
inline constexpr CacheInsertPorts kRopePorts = {.key = 1,
                                                .value = 2,
                                                .key_cache = 3,
                                                .value_cache = 4,
                                                .slot_mapping = 5,
                                                .k_scale = 11,
                                                .v_scale = 12,
                                                .k_scale_cache = 13,
                                                .v_scale_cache = 14,
                                                .rht_signs = -1,
                                                .first_output = 1};
inline constexpr float kRopeEpsilon = 1e-6f;

// RMSNormalization (with norm weights), RotaryEmbedding and the nodes of PagedCacheInsert, in
// float.
absl::StatusOr<DecompositionVariant> RopeCacheInsertBody(const Node& node);

// The structures of float graphs: with and without norms and positions, in each mode. Graphs of
// 16-bit types round between norm, rotation and insert, so their spelling is not this op's.
std::vector<DecompositionVariant> RopeCacheInsertVariants();

}  // namespace pagefuse::pagefuse_ops
