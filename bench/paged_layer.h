// Calls of the ops over paged key and value caches with random contents, for benchmarks: one
// sequence over one layer's cache, blocks in random order, as in a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "op_call.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse {

inline constexpr int64_t kBenchBlockSize = 16;

struct ModelShape {
  const char* name;
  int64_t heads, kv_heads, head_size, window;
};

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

// PagedCacheInsert of `tokens` tokens into a cache with twice as many slots.
std::unique_ptr<OpCall> PagedCacheInsertCall(const ModelShape& shape, const CacheKind& kind,
                                             int64_t tokens);
// RopeCacheInsert, with norms, of `tokens` tokens into a cache with twice as many slots.
std::unique_ptr<OpCall> RopeCacheInsertCall(const ModelShape& shape, const CacheKind& kind,
                                            int64_t tokens);
// MergeAttnStates of two halves of an attention of `tokens` bfloat16 tokens.
std::unique_ptr<OpCall> MergeAttnStatesCall(const ModelShape& shape, int64_t tokens);
// Bytes that a PagedCacheInsert of keys and values of type `kind.query` reads and writes.
int64_t InsertedBytes(const ModelShape& shape, const CacheKind& kind, int64_t tokens);

// TurboQuantAttention of one token at the end of a sequence of `length`, bfloat16.
std::unique_ptr<OpCall> TurboQuantAttentionCall(const ModelShape& shape,
                                                const TurboQuantPreset& preset, int64_t length);
// What rotates the keys of a TurboQuant cache.
enum class KeyRotation { kHadamard, kGivenMatrix };
// TurboQuantInsert of `tokens` bfloat16 tokens into a cache with twice as many slots.
std::unique_ptr<OpCall> TurboQuantInsertCall(const ModelShape& shape,
                                             const TurboQuantPreset& preset, int64_t tokens,
                                             KeyRotation rotation = KeyRotation::kHadamard);
// TurboQuantDequant of a sequence of `length`.
std::unique_ptr<OpCall> TurboQuantDequantCall(const ModelShape& shape,
                                              const TurboQuantPreset& preset, int64_t length,
                                              bool inverse);
// Bytes of `tokens` slots.
int64_t TurboQuantBytes(const ModelShape& shape, const TurboQuantPreset& preset, int64_t tokens);

}  // namespace pagefuse
