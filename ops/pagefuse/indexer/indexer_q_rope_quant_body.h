// The attributes of IndexerQRopeQuant, and the text of its decomposition.
#pragma once

#include <cstdint>
#include <string>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

// What the nodes depend on.
struct IndexerQBody {
  bool mxfp4 = false;
  bool is_plain = false;  // numbers instead of codes
  bool hadamard = false;
  DataType storage = DataType::kFloat8E4M3FN;  // of fp8 codes
  DataType type = DataType::kBfloat16;
  DataType table_type = DataType::kFloat;
  DataType weight_type = DataType::kBfloat16;
  int64_t heads = 0;
  int64_t size = 0;
  RopeLayout layout;

  // fp8: one power of two a head, kept in the weights. mxfp4: a byte for 32 channels.
  GroupFormat format() const;
  int64_t group() const;
  std::string Text() const;
};

inline constexpr int64_t kMxfp4Group = 32;

}  // namespace pagefuse::pagefuse_ops
