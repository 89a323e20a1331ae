// SPDX-License-Identifier: Apache-2.0
// GroupQueryAttention: attention with rotation, key and value cache and grouped heads in one op.
// Ports and sizes, shared by inference, checks and kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/scaled_rows.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::microsoft_ops {

enum GqaInput {
  kGqaQuery,        // [B, S, H * D], or [B, S, (H + 2 Hk) * D] without key and value
  kGqaKey,          // [B, S, Hk * D]
  kGqaValue,        // [B, S, Hk * D]
  kGqaPastKey,      // [B, Hk, P, D]
  kGqaPastValue,    // [B, Hk, P, D]
  kGqaSeqlensK,     // [B]: valid tokens of each sequence, less one
  kGqaTotal,        // []: the longest sequence with the new tokens
  kGqaCos,          // [positions, R / 2]
  kGqaSin,          // [positions, R / 2]
  kGqaPositionIds,  // [B, S]
  kGqaBias,         // [B or 1, H or 1, S, total]
  kGqaHeadSink,     // [H]
  kGqaKScale,       // [1], or [Hk, 1, D]
  kGqaVScale,       // [1], or [Hk, 1, D]
  kGqaQNormWeight,  // [D]
  kGqaKNormWeight,  // [D]
};

enum class KvScales { kNone, kPerTensor, kPerChannel };

struct GqaAttributes {
  int64_t q_heads = 0, kv_heads = 0;
  float scale = 0;  // 0: 1 / sqrt(D)
  float softcap = 0;
  float norm_epsilon = 1e-6f;
  bool causal = true;
  bool rotates = false, interleaved = false;
  bool smooth_softmax = false;
  bool windowed_cache = false;  // the cache holds the last rows only
  int64_t window = -1;
  KvScales k_scales = KvScales::kNone, v_scales = KvScales::kNone;
  int64_t bits = 0;  // of a cache with scales
};

// Reads and checks the attributes. InvalidArgument naming node and attribute.
absl::StatusOr<GqaAttributes> GqaAttributesOf(const Node& node);

// A sequence in this call, in rows of the cache.
struct GqaSequence {
  int64_t total = 0;     // tokens with the new ones
  int64_t resident = 0;  // rows of the past that are used
  int64_t rows = 0;      // of the past and the new tokens, without padding
  int64_t first = 0;     // row of query 0 among the attended rows; < 0: it sees none
  int64_t position = 0;  // of query 0, for the rotation
};

// One call in numbers.
struct GqaCall {
  GqaAttributes attributes;
  bool packed = false;  // query holds keys and values too
  int64_t batch = 0, q_len = 0, kv_len = 0, head_size = 0;
  int64_t past_rows = 0, present_rows = 0;  // rows of the cache tensors
  std::vector<GqaSequence> sequences;
};

// Sizes from checked shapes, and each sequence from the contents of seqlens_k.
absl::StatusOr<GqaCall> GqaCallOf(const KernelArgs& args);

// How a windowed cache of `capacity` rows is kept (ONNX Runtime's contract): after `total` tokens
// it holds the last ones, this many; they move to the front in steps of capacity - window + 1 rows.
int64_t WindowedRows(int64_t total, int64_t capacity, int64_t window);

// How rows of the key (value) cache are stored, with the scales of this call.
absl::StatusOr<ScaledRows> GqaRows(const KernelArgs& args, const GqaCall& call, bool keys);

absl::Status InferGqa(ShapeContext& context);
absl::Status ValidateGqa(const KernelArgs& args);
absl::Status GqaReference(KernelArgs& args);
absl::Status GqaHwy(KernelArgs& args);

}  // namespace pagefuse::microsoft_ops
