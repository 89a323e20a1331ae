// SPDX-License-Identifier: Apache-2.0
// The table of op_bench: calls of ops of domain pagefuse, and what a run of each has to do at least.
// op_peer compares the same calls with ONNX Runtime.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "op_call.h"

namespace pagefuse {

struct Work {
  int64_t bytes = 0;  // read and written; of lookups read alone
  double flops = 0;
  bool bf16 = false;  // the flops of the unit for bfloat16, where the machine has one
  int64_t rows = 0;   // where the time of a row is asked for
};

// Tokens of calls that are measured against a plain copy, and of those compared with ONNX Runtime.
inline const std::vector<int64_t> kCopiedTokens = {1, 64, 2048};
inline constexpr int64_t kPeerTokens = 256;

// A row: the benchmarks op/kernel/variant, without a kernel where none is named: then it is the one
// that a session would choose.
struct OpCase {
  std::string op, variant;
  std::function<std::unique_ptr<OpCall>(int64_t tokens)> make;
  std::function<Work(int64_t tokens)> work;
  // A row of an op that copies: measured as a share of a plain copy, in one place for each number
  // of tokens and in many places in turn for the last. None: one benchmark, against the peaks.
  std::vector<int64_t> tokens = {};
  std::vector<std::string> kernels = {};
  int64_t layers = 0;  // calls in turn; 0: so many that no cache holds their bytes
  // Calls of which the time is a multiple; they take turns with it.
  std::function<std::unique_ptr<OpCall>()> baseline = {};
  int64_t peer_tokens = kPeerTokens;  // of a copying op; 0: no peer
};
using OpCases = std::vector<OpCase>;

void AddPagedCases(OpCases& cases);
void AddTurboQuantCases(OpCases& cases);
void AddIndexerCases(OpCases& cases);
void AddLatentCases(OpCases& cases);
void AddSparseMlaCases(OpCases& cases);
OpCases AllOpCases();

// Calls that op_peer compares at sizes of its own.
enum class LogitOrder { kRandom, kRising, kFewValues };
// `rows` queries that all see `keys` keys.
std::unique_ptr<OpCall> MqaLogitsCall(int64_t rows, int64_t keys);
// `queries` queries each of `sequences` sequences of `length` keys.
std::unique_ptr<OpCall> PagedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length);
// The 2048 largest of all columns of each row.
std::unique_ptr<OpCall> IndexerTopKCall(LogitOrder order, int64_t rows, int64_t columns);

struct LatentKind {
  const char* name;
  const char* format;
  DataType query, cache;
  int64_t head_size;

  int64_t RowBytes() const;  // of one row of the cache
};
inline constexpr LatentKind kLatentKinds[] = {
    {"bf16_576", "bf16", DataType::kBfloat16, DataType::kBfloat16, 576},
    {"bf16_512", "bf16", DataType::kBfloat16, DataType::kBfloat16, 512},
    {"fp8_ds_mla", "fp8_ds_mla", DataType::kBfloat16, DataType::kUint8, 576},
    {"fp8_ue8m0", "fp8_ue8m0", DataType::kBfloat16, DataType::kUint8, 512},
    {"f32_576", "bf16", DataType::kFloat, DataType::kFloat, 576},
};
inline constexpr int64_t kSparseMlaListed = 2048;  // rows a token
struct SparseMlaShape {
  int64_t tokens, heads;
  bool dense;            // all rows of the one sequence instead of listed ones
  int64_t rows = 16384;  // of the cache
  // Length of the sequence of a dense call: prefill from its start, decode of a whole cache.
  int64_t DenseLength() const { return tokens > 8 ? std::max(tokens, kSparseMlaListed) : rows; }
};
std::unique_ptr<OpCall> SparseMlaCall(const LatentKind& kind, const SparseMlaShape& shape);

}  // namespace pagefuse
