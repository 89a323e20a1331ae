// SPDX-License-Identifier: Apache-2.0
// Reads of the rows of requests from paged caches on the device: KCacheDequantGather, MlaGatherUpconvert and IndexerKGather.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// A cache of grouped rows, and the blocks in which the tokens of each request lie.
struct PagedRequests {
  GroupedRowFormat format;
  CacheRows rows;
  const int32_t* block_table = nullptr;  // [requests, columns]
  int64_t requests = 0;
  int64_t columns = 0;
  int64_t capacity = 0;  // of a request, in tokens: columns * block size
  // Where block numbers that are none of the cache, and lengths and rows that nothing has room for, are told. None is read or written.
  IndexErrors errors;
  int table_input = 0;
};

// The last gather_lens[r] rows of request r's seq_lens[r], decoded to bfloat16, into rows offset, offset + 1, ... of its part of the
// workspace. Other rows keep their contents.
struct LastRowsGather {
  PagedRequests pages;
  const int32_t* seq_lens = nullptr;     // [requests]
  const int32_t* gather_lens = nullptr;  // [requests]; may be seq_lens
  int seq_lens_input = 0;
  int gather_lens_input = 0;
  int64_t offset = 0;
  int64_t workspace_rows = 0;    // of a request
  uint8_t* workspace = nullptr;  // [requests, workspace_rows, elements]
};
Error LaunchLastRowsGather(const LastRowsGather& gather, Stream stream);

// All rows of each request, decoded to bfloat16, into the workspace from row starts[r] on. Rows of no request are zero. A row that two
// requests claim is told, and the first of them has it.
struct RequestRowsGather {
  PagedRequests pages;
  const int32_t* seq_lens = nullptr;  // [requests]
  const int32_t* starts = nullptr;    // [requests]
  int seq_lens_input = 0;
  int starts_input = 0;
  int64_t workspace_rows = 0;
  uint8_t* workspace = nullptr;  // [workspace_rows, elements]
};
Error LaunchRequestRowsGather(const RequestRowsGather& gather, Stream stream);

// Codes and scales of all rows of each request, one behind the other, as they are: rows of kSplit without plain elements. Rows behind
// the last request are zero.
struct KeyGather {
  PagedRequests pages;
  const int32_t* starts = nullptr;  // [requests + 1], from 0, not decreasing
  int starts_input = 0;
  int64_t rows = 0;
  uint8_t* codes = nullptr;   // [rows, CodeBytes()]
  uint8_t* scales = nullptr;  // [rows, ScaleBytes()]
};
Error LaunchKeyGather(const KeyGather& gather, Stream stream);

}  // namespace pagefuse::cuda
