// SPDX-License-Identifier: Apache-2.0
// Queries of the indexer rotated and quantised, or kept as numbers, their scales folded into weights.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

struct IndexerQCall : RowsToRotate {
  bool is_plain = false;  // numbers of `type` instead of codes; nothing is rounded before
  bool hadamard = false;  // heads are rotated by HadamardRotate behind their positions
  int64_t group = 0;      // channels with one scale: size for fp8
  GroupFormat format;
  uint8_t* codes = nullptr;   // [rows, CodeRowBytes()]
  uint8_t* scales = nullptr;  // [rows, size / group]; null for fp8, whose scale goes into weights

  DataType weight_type = DataType::kFloat;
  const uint8_t* weights = nullptr;  // [rows]
  float* weights_out = nullptr;
  float softmax_scale = 0;
  float head_scale = 0;

  int64_t CodeRowBytes() const { return is_plain ? RowBytes() : format.CodeBytes(size); }
  bool folds_scale() const { return scales == nullptr; }
  int64_t WeightBytes() const { return BitWidth(weight_type) / 8; }
  // A weight times the query scale (unless that is stored) and both factors, each product rounded
  // to float.
  float ScaledWeight(float weight, float query_scale) const {
    const float scaled = folds_scale() ? weight * query_scale : weight;
    return scaled * softmax_scale * head_scale;
  }
};

// The plain way; and the same bytes, vectorised, parallel over rows.
void IndexerQRopeQuantPlain(const IndexerQCall& call);
void IndexerQRopeQuantHwy(const IndexerQCall& call);

}  // namespace pagefuse::pagefuse_ops
