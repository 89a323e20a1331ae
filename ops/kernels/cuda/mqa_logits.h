// SPDX-License-Identifier: Apache-2.0
// MqaLogits and PagedMqaLogits on the device: index scores of queries over keys,
//
//   logits[m, n] = sum over h of weights[m, h] * max(0, (q[m, h] . key(m, n)) * scale(m, n))
//
// for the keys n that row m sees, -inf for other columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"

namespace pagefuse::cuda {

// Codes of e4m3fn have a float scale each (CacheRows::scales), numbers have none. Four-bit keys are pairs of
// e2m1 codes, the even element in the low nibble, and a UE8M0 byte for 32 elements at `scales`.
enum class MqaKeyFormat { kFloat8, kFloat, kFloat16, kBfloat16, kFourBits };

// All pointers but those in the struct itself are the device's. Contents that say places and ranges were
// checked; what is outside of tensors all the same is not read.
struct MqaLogits {
  DataType query_type = DataType::kFloat8E4M3FN;  // or float, float16, bfloat16
  const uint8_t* q = nullptr;                     // [rows, heads, head_size]
  const float* weights = nullptr;                 // [rows, heads]
  int64_t rows = 0;
  int64_t first_row = 0;  // with a block table: the number among all rows of the first of these
  int heads = 0;
  int head_size = 0;

  MqaKeyFormat key_format = MqaKeyFormat::kFloat8;
  CacheRows keys;
  // [sequences, table_columns]: key n of a sequence lies in block table[n / block_size]. Null: one sequence,
  // whose keys are block 0.
  const int32_t* block_table = nullptr;
  int64_t table_columns = 0;
  int64_t sequences = 1;

  // Without a block table: row m sees keys begins[m] <= n < ends[m].
  const int32_t* begins = nullptr;
  const int32_t* ends = nullptr;
  // With one: sequence b has lengths[b] tokens, of which the last are rows starts[b] to starts[b + 1] - 1, or,
  // where `starts` is null, b * queries to (b + 1) * queries - 1. A row of position p sees the first
  // (p + 1) / ratio keys.
  const int32_t* lengths = nullptr;
  const int32_t* starts = nullptr;
  int64_t queries = 1;
  int64_t ratio = 1;

  bool clean =
      true;  // false: columns at and past the context, or outside of a dense range, may hold anything
  int64_t width = 0;
  float* logits = nullptr;  // [rows, width]
};

// By the tensor cores of Hopper where the call fits them (mqa_logits_tiles.h), else by plain sums in float. `workspace`: device memory of so
// many bytes.
size_t MqaLogitsWorkspace(const MqaLogits& call);
Error LaunchMqaLogits(const MqaLogits& call, void* workspace, Stream stream);

}  // namespace pagefuse::cuda
