// SPDX-License-Identifier: Apache-2.0
// Rows picked and written by tuples of indices on a CUDA device, and tensors that places alone decide: filled, counted, cut off at a diagonal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// --- rows by tuples of indices ---

inline constexpr int kMostTupleIndices = 8;

// Which row of a table [batches * rows, ...] each tuple names: along some axes, of which index i is an index. Negative ones count from the end;
// a tuple that has one out of range names no row, which is told.
struct IndexTuples {
  const int64_t* indices = nullptr;  // [count, depth], input 1 of the node
  int64_t count = 0;
  int64_t batch_count = 0;  // of them that name rows of one batch
  int64_t batch_rows = 0;
  int depth = 0;  // at most kMostTupleIndices
  int64_t sizes[kMostTupleIndices] = {};
  int64_t strides[kMostTupleIndices] = {};  // in rows
  IndexErrors errors = {};
};

// to[k] = table[row that tuple k names], or zeros.
struct GatherTuplesParams {
  IndexTuples tuples = {};
  int64_t row_bytes = 0;
  const void* table = nullptr;
  void* to = nullptr;
};
Error LaunchGatherTuples(const GatherTuplesParams& params, Stream stream);

// table[row that tuple k names] = from[k]; of those that name the same row the last wins.
struct ScatterTuplesParams {
  IndexTuples tuples = {};
  int64_t row_bytes = 0;
  void* table = nullptr;
  int64_t table_rows = 0;
  const void* from = nullptr;
  void* scratch = nullptr;  // ScatterTuplesScratchBytes(params) bytes, aligned to 16
};
size_t ScatterTuplesScratchBytes(const ScatterTuplesParams& params);
Error LaunchScatterTuples(const ScatterTuplesParams& params, Stream stream);

// --- tensors of places ---

// An element of up to 16 bytes.
struct ElementBytes {
  alignas(16) unsigned char bytes[16] = {};
};

struct FillParams {
  void* to = nullptr;
  int64_t count = 0, element_size = 0;
  ElementBytes value = {};
};
Error LaunchFill(const FillParams& params, Stream stream);

// to[i] = start + i * delta, as the type computes: narrow floats in float, integers wrap.
struct RangeParams {
  DataType type = DataType::kFloat;  // float, double, float16, bfloat16, int16, int32, int64
  void* to = nullptr;
  int64_t count = 0;
  double start = 0, delta = 0;           // of floats
  int64_t int_start = 0, int_delta = 0;  // of integers
};
Error LaunchRange(const RangeParams& params, Stream stream);

// to = from within the triangle of each matrix, else 0: columns from row + k on, or below row + k + 1.
struct TriangleParams {
  const void* from = nullptr;
  void* to = nullptr;  // may be `from`
  int64_t matrices = 0, rows = 0, columns = 0, element_size = 0;
  int64_t k = 0;
  bool upper = true;
};
Error LaunchTriangle(const TriangleParams& params, Stream stream);

// to [outer, depth, inner]: values[1] where the index [outer, inner] is that place, else values[0]. Negative indices count from the end;
// others name no place.
struct OneHotParams {
  DataType index_type = DataType::kInt64;  // int32, int64, float
  const void* indices = nullptr;
  const void* values = nullptr;  // [2]
  void* to = nullptr;
  int64_t outer = 0, depth = 0, inner = 0, element_size = 0;
};
Error LaunchOneHot(const OneHotParams& params, Stream stream);

}  // namespace pagefuse::cuda
