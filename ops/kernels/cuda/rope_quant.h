// SPDX-License-Identifier: Apache-2.0
// InvRopeQuant and IndexerQRopeQuant on the device: rows rotated and stored as groups of codes.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/cuda/row_rotation.h"
#include "pagefuse/ops/kernels/formats/group_format.h"

namespace pagefuse::cuda {

struct InvRopeQuant {
  RotatedRows rows;  // their rotation is the inverse one
  GroupFormat format;
  int group = 0;              // elements with one scale
  uint8_t* codes = nullptr;   // [tokens, heads, size]
  uint8_t* scales = nullptr;  // [tokens, heads, size / group], floats or bytes
};
Error LaunchInvRopeQuant(const InvRopeQuant& call, Stream stream);

struct IndexerQRopeQuant {
  RotatedRows rows;
  bool is_plain = false;  // numbers of the rows' type instead of codes; nothing is rounded before
  bool hadamard = false;  // rows are transformed behind their rotation
  GroupFormat format;
  int group = 0;
  uint8_t* codes = nullptr;  // [tokens, heads, size] numbers or codes; of four bits two a byte
  uint8_t* scales =
      nullptr;  // [tokens, heads, size / group]; null: the one scale of a row goes into its weight
  DataType weight_type = DataType::kFloat;  // float, float16, bfloat16
  const void* weights = nullptr;            // [tokens, heads]
  float* weights_out = nullptr;             // weight (* scale) * softmax_scale * head_scale
  float softmax_scale = 0;
  float head_scale = 0;
};
Error LaunchIndexerQRopeQuant(const IndexerQRopeQuant& call, Stream stream);

}  // namespace pagefuse::cuda
