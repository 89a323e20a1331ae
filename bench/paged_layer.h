// SPDX-License-Identifier: Apache-2.0
// Calls of the ops over paged key and value caches with random contents, for benchmarks: one
// sequence over one layer's cache, blocks in random order, as in a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "op_call.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse {

inline constexpr int64_t kBenchBlockSize = 16;
inline int64_t BenchBlocks(int64_t tokens) {
  return (tokens + kBenchBlockSize - 1) / kBenchBlockSize;
}

struct ModelShape {
  const char* name;
  int64_t heads, kv_heads, head_size, window;
};
inline constexpr ModelShape kLlama = {"hq32_hk8_d128", 32, 8, 128, 0};

struct CacheKind {
  std::string name;
  CacheFormat format;
  DataType type;   // of the cache
  DataType query;  // of queries, keys and values
};
// Each format of rows under bfloat16 queries, by its name.
std::vector<CacheKind> CacheKinds();
// Rows of numbers of `type`, and queries of it.
CacheKind NumbersOf(DataType type);

// PagedAttention of `queries` tokens at the end of a sequence of `length`.
std::unique_ptr<OpCall> PagedAttentionCall(const ModelShape& shape, const CacheKind& kind,
                                           int64_t queries, int64_t length);
// Bytes of keys, values and scales that the last query token of it sees.
int64_t VisibleBytes(const ModelShape& shape, const CacheKind& kind, int64_t length);

// The preset's name behind "turboquant_".
inline std::string PresetName(const TurboQuantPreset& preset) {
  return std::string(preset.name.substr(std::string_view("turboquant_").size()));
}
// TurboQuantAttention of one token at the end of a sequence of `length`, bfloat16.
std::unique_ptr<OpCall> TurboQuantAttentionCall(const ModelShape& shape,
                                                const TurboQuantPreset& preset, int64_t length);

}  // namespace pagefuse
