// Calls of the lightning indexer's ops at the sizes of DeepSeek V3.2, for benchmarks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "op_call.h"

namespace pagefuse {

inline constexpr int64_t kIndexerHeads = 64;
inline constexpr int64_t kIndexerHeadSize = 128;
inline constexpr int64_t kIndexerBlockSize = 64;
inline constexpr int64_t kIndexerTokenBytes = kIndexerHeadSize + 4;
inline constexpr int64_t kPackedTokenBytes = kIndexerHeadSize / 2 + kIndexerHeadSize / 32;

// `rows` queries that all see `keys` keys.
std::unique_ptr<OpCall> MqaLogitsCall(int64_t rows, int64_t keys);

// One layer's cache and `sequences` sequences of `length` keys with `queries` queries each.
std::unique_ptr<OpCall> PagedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length);
// The same of float queries over mxfp4 keys.
std::unique_ptr<OpCall> PackedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length);

enum class LogitOrder { kRandom, kRising, kFewValues };

// The `topk` largest of all columns of each row.
std::unique_ptr<OpCall> IndexerTopKCall(LogitOrder order, int64_t rows, int64_t columns,
                                        int64_t topk);

// Into a cache with twice as many slots.
std::unique_ptr<OpCall> IndexerKQuantInsertCall(int64_t tokens);

// All keys of one request.
std::unique_ptr<OpCall> IndexerKGatherCall(int64_t tokens);

// `format` is that of the op: fp8 or mxfp4.
std::unique_ptr<OpCall> IndexerQRopeQuantCall(const std::string& format, int64_t tokens);

}  // namespace pagefuse
