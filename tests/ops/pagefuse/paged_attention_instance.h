// SPDX-License-Identifier: Apache-2.0
// Random calls of PagedAttention, for tests: queries, caches in any format, tables and extras.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"

namespace pagefuse::testing {

// One sequence of a batch.
struct SequenceSpec {
  int64_t queries = 1;
  int64_t length = 1;
};

struct PagedAttentionSpec {
  DataType query = DataType::kFloat;
  KvQuantMode mode = KvQuantMode::kNone;
  DataType cache = DataType::kFloat;  // type of the cache ports; uint8 for a twin
  int64_t heads = 4, kv_heads = 2, head_size = 64, block_size = 16;
  std::vector<SequenceSpec> sequences = {{1, 40}};
  bool causal = true;
  int64_t window = 0, lookback = -1;
  float softcap = 0;
  bool sink = false, alibi = false, alibi_sqrt = false, qq_bias = false, output_scale = false;
  bool causal_flags = false, lse = false, clamp = false;
  // (sequence, first, last)
  std::vector<std::vector<int32_t>> ranges = {};
  // Breaks the first query and a value that its sequence sees: they are no numbers.
  bool broken = false;
  std::optional<float> nan_value = {};
  uint64_t seed = 1;
};

// Slots that hold no token, and blocks that no sequence has, are NaN where the format can say so;
// table entries that nothing needs are -1.
struct PagedAttentionInstance {
  explicit PagedAttentionInstance(const PagedAttentionSpec& spec);

  // Runs a kernel ("decomposition" runs that).
  absl::StatusOr<std::vector<Tensor>> Run(const std::string& kernel) const;

  std::vector<Tensor> inputs;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  Node* node = nullptr;
};

// Largest |a - b| / (atol + rtol |b|) over two outputs of the same type and shape; infinity if they
// differ in NaN, or in infinities.
double WorstError(const Tensor& a, const Tensor& b, double rtol, double atol);

}  // namespace pagefuse::testing
