// SPDX-License-Identifier: Apache-2.0
// TurboQuantInsert and TurboQuantDequant on the device.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/centroid_table.h"
#include "pagefuse/ops/kernels/formats/turboquant_slot.h"

namespace pagefuse::cuda {

struct TurboQuantInsert {
  TurboQuantFormat format;
  const float* rotation = nullptr;  // [D, D]; null: the Hadamard matrix
  CentroidTable centroids;
  DataType source_type = DataType::kFloat;  // float, float16, bfloat16
  const void* key = nullptr;                // [at least tokens, heads, D]
  const void* value = nullptr;
  int heads = 0;
  CacheRows rows;  // slots
  SlotMapping slots;
};

Error LaunchTurboQuantInsert(const TurboQuantInsert& insert, Stream stream);

struct TurboQuantDequant {
  TurboQuantFormat format;
  bool norm_correction = false;
  bool inverse_rotate = false;
  const float* rotation = nullptr;
  CentroidTable centroids;
  CacheRows slots;
  const int32_t* block_table = nullptr;  // [sequences, table_columns]
  const int32_t* seq_lens = nullptr;     // [sequences]
  int64_t sequences = 0;
  int64_t table_columns = 0;
  int64_t heads = 0;
  int64_t positions = 0;
  void* key = nullptr;  // float16 [sequences, heads, positions, D]
  void* value = nullptr;
};

Error LaunchTurboQuantDequant(const TurboQuantDequant& dequant, Stream stream);

}  // namespace pagefuse::cuda
