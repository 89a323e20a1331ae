// SPDX-License-Identifier: Apache-2.0
// Elements copied from place to place on a CUDA device: boxes between strided tensors, rows by index.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// A box of elements of 1, 2, 4, 8 or 16 bytes. Strides count elements, may be 0 or negative in the source, and do
// not let written elements overlap. `from` and `to` are the elements at the box's origin.
struct CopyBoxParams {
  std::vector<int64_t> dims = {}, from_strides = {}, to_strides = {};
  int64_t element_size = 0;
  const void* from = nullptr;
  void* to = nullptr;
};
Error LaunchCopyBox(const CopyBoxParams& params, Stream stream);

// to[o, i, :] = from[o, index[i], :] for rows of `row_bytes` bytes: from [outer, size, row], to [outer, count, row],
// dense. A negative index counts from the end; one that is out of range gives zeros, and is told as one of input 1.
struct GatherParams {
  const void* from = nullptr;
  const void* indices = nullptr;  // [count], int32 or int64
  bool wide_indices = false;      // int64
  IndexErrors errors = {};
  void* to = nullptr;
  int64_t outer = 0, size = 0, count = 0, row_bytes = 0;
};
Error LaunchGather(const GatherParams& params, Stream stream);

// Elements of a table by an index each, along one axis: element k of `dims` is that of the table at k, with indices[k]
// in place of its place along the axis. Into `elements`, or from them; of those that are written to one place the
// last along the axis wins. An index that is out of range gives zeros, and writes nothing; it is told as above.
struct ElementsParams {
  const void* indices = nullptr;  // dims, int32 or int64
  bool wide_indices = false;
  IndexErrors errors = {};
  std::vector<int64_t> dims;           // of indices and elements
  std::vector<int64_t> table_strides;  // in elements
  int axis = 0;
  int64_t size = 0;  // of the table along the axis
  int64_t element_size = 0;
  void* table = nullptr;
  void* elements = nullptr;
};
Error LaunchGatherElements(const ElementsParams& params, Stream stream);
Error LaunchScatterElements(const ElementsParams& params, Stream stream);

// Gather of a table of codes in blocks along one axis: (code - zero point) * scale. Elements of the table are
// [outer, size, row] around the axis of the indices, and [before, length, after] around that of the blocks.
// Codes of 4 and 2 bits lie in bytes, the first in the low bits.
struct GatherCodesParams {
  const uint8_t* codes = nullptr;
  const void* indices = nullptr;
  bool wide_indices = false;
  IndexErrors errors = {};
  const void* scales = nullptr;    // [before, blocks, after], of `type`
  const uint8_t* zeros = nullptr;  // null: `zero` for all; else codes as the scales lie
  void* to = nullptr;
  DataType type = DataType::kFloat;  // of scales and result: float, float16, bfloat16
  int bits = 4;
  bool is_signed = false;     // codes of 4 bits
  bool zeros_padded = false;  // zero points of each `before` begin at a byte (`after` is 1)
  int zero = 0;
  int64_t outer = 0, size = 0, count = 0, row = 0;
  int64_t length = 0, after = 0, block = 0;
};
Error LaunchGatherCodes(const GatherCodesParams& params, Stream stream);

}  // namespace pagefuse::cuda
