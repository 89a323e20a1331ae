// SPDX-License-Identifier: Apache-2.0
// Random calls of SparseMlaAttention, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "op_test.h"

#include "pagefuse/paged_attention_instance.h"

namespace pagefuse::testing {

struct SparseMlaSpec {
  std::string format = "bf16";
  DataType query = DataType::kBfloat16;
  DataType cache = DataType::kBfloat16;  // "bf16" only
  int64_t heads = 4;
  // "bf16", or with groups of another size than the published one: else those of the format, and
  // 512.
  int64_t head_size = 40, value_size = 24;
  int64_t group = 0, rope_size = 64;
  int64_t num_blocks = 5, block_size = 16;
  // Listed rows: `columns` a token, some of them none.
  int64_t tokens = 3, columns = 40, extra_columns = 0;
  bool lens = false, sink = false, holes = true, lse = true;
  // Dense rows instead, if there are any.
  std::vector<SequenceSpec> sequences = {};
  bool causal = true;
  uint64_t seed = 1;
};

// Rows that no token sees are NaN; table entries that nothing needs are -1, list entries behind
// their length out of range.
OpCase SparseMlaCase(std::string name, const SparseMlaSpec& spec);

// Largest magnitude in the rows of the case's caches that its tokens see; what the error of an
// output is measured by.
inline constexpr double kSparseMlaLargest = 5.0;

}  // namespace pagefuse::testing
