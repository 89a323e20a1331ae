// SPDX-License-Identifier: Apache-2.0
// PagedAttention of com.microsoft: packed tokens over caches of blocks, which it updates in place.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/scaled_rows.h"
#include "pagefuse/ops/microsoft/group_query_attention.h"

namespace pagefuse::microsoft_ops {

enum MsPagedInput {
  kMspQuery,        // [T, H * D], or [T, (H + 2 Hk) * D] without key and value
  kMspKey,          // [T, Hk * D]
  kMspValue,        // [T, Hk * D]; absent beside a key: values are the first channels of keys
  kMspKeyCache,     // [NB, BS, Hk, D]
  kMspValueCache,   // [NB, BS, Hk, D]
  kMspCumulative,   // [B + 1]: first token of each sequence
  kMspPast,         // [B]: tokens of each sequence before these
  kMspBlockTable,   // [B, M]: block of each BS tokens, -1: not mapped
  kMspCos,          // [positions, R / 2]
  kMspSin,          // [positions, R / 2]
  kMspSlots,        // [T]: where a token is written, -1: nowhere
  kMspHeadSink,     // [H]
  kMspQNormWeight,  // [D]
  kMspKNormWeight,  // [D]
  kMspKScale,       // [1], or [Hk, 1, D]
  kMspVScale,       // [1], or [Hk, 1, D]
  kMspMetadata,     // [3]: a hint
};

// One call in numbers.
struct MsPagedCall {
  GqaAttributes attributes;
  bool packed = false;  // query holds keys and values too
  bool latent = false;  // values are the first v_size channels of keys
  int64_t rotary_offset = 0;
  int64_t tokens = 0, batch = 0, head_size = 0, v_size = 0;
  int64_t num_blocks = 0, block_size = 0, table_columns = 0;
  const int32_t* cumulative = nullptr;
  const int32_t* past = nullptr;
  const int32_t* table = nullptr;
  const int32_t* slots = nullptr;  // null: by the table

  int64_t queries(int64_t b) const { return cumulative[b + 1] - cumulative[b]; }
  // The slot of position p of sequence b; -1 if its block is not mapped.
  int64_t SlotAt(int64_t b, int64_t p) const {
    const int64_t block = table[b * table_columns + p / block_size];
    return block < 0 ? -1 : block * block_size + p % block_size;
  }
  // Where new token i of sequence b is written; -1: nowhere.
  int64_t WriteSlot(int64_t b, int64_t i) const {
    return slots != nullptr ? slots[cumulative[b] + i] : SlotAt(b, past[b] + i);
  }
};

// The attributes that are not GroupQueryAttention's.
struct MsPagedLayout {
  int64_t v_size = 0;  // 0: D
  int64_t rotary_offset = 0;
  bool latent = false;  // said so by kv_cache_layout
};
absl::StatusOr<MsPagedLayout> MsPagedLayoutOf(const Node& node);

// Sizes from checked shapes.
absl::StatusOr<MsPagedCall> MsPagedCallOf(const KernelArgs& args);
// How rows of the key (value) cache are stored.
absl::StatusOr<ScaledRows> MsPagedRows(const KernelArgs& args, const MsPagedCall& call, bool keys);

absl::Status InferMsPaged(ShapeContext& context);
absl::Status ValidateMsPaged(const KernelArgs& args);
absl::Status MsPagedReference(KernelArgs& args);
absl::Status MsPagedHwy(KernelArgs& args);

}  // namespace pagefuse::microsoft_ops
