// Calls of SparseMlaAttention over one layer's latent cache, for benchmarks.
#pragma once

#include <cstdint>
#include <memory>

#include "op_call.h"

namespace pagefuse {

inline constexpr int64_t kSparseMlaListed = 2048;  // rows a token
inline constexpr int64_t kSparseMlaValueSize = 512;

struct LatentKind {
  const char* name;
  const char* format;
  DataType query, cache;
  int64_t head_size;

  // Of one row of the cache.
  int64_t RowBytes() const;
};

inline constexpr LatentKind kLatentKinds[] = {
    {"bf16_576", "bf16", DataType::kBfloat16, DataType::kBfloat16, 576},
    {"bf16_512", "bf16", DataType::kBfloat16, DataType::kBfloat16, 512},
    {"fp8_ds_mla", "fp8_ds_mla", DataType::kBfloat16, DataType::kUint8, 576},
    {"fp8_ue8m0", "fp8_ue8m0", DataType::kBfloat16, DataType::kUint8, 512},
    {"f32_576", "bf16", DataType::kFloat, DataType::kFloat, 576},
};

struct SparseMlaShape {
  int64_t tokens, heads;
  bool dense;            // all rows of the one sequence instead of listed ones
  int64_t rows = 16384;  // of the cache
  // Length of the sequence of a dense call: prefill from its start, decode of a whole cache.
  int64_t DenseLength() const { return tokens > 8 ? std::max(tokens, kSparseMlaListed) : rows; }
};

std::unique_ptr<OpCall> SparseMlaCall(const LatentKind& kind, const SparseMlaShape& shape,
                                      uint32_t seed);

}  // namespace pagefuse
